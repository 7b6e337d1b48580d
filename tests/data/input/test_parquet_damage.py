"""Parquet that is gone or damaged is refused; a value that cannot be read harms no other row."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchrunner.data.input.columns import parquet_schema
from batchrunner.data.input.sources import InputFile
from batchrunner.errors import DataError
from tests.data.input.input_files import all_rows, parquet


def test_a_parquet_file_that_has_vanished_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.parquet"):
        all_rows(InputFile(tmp_path / "gone.parquet", "parquet"))


@pytest.mark.parametrize("content", [b"", b"PAR1", b"hello " * 100, b"PAR1" + b"\x00" * 100 + b"PAR1"])
def test_what_is_not_parquet_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"a\.parquet: not readable as Parquet"):
        all_rows(InputFile(path, "parquet"))


def test_a_cut_parquet_file_is_refused(tmp_path: Path) -> None:
    file = parquet(tmp_path / "a.parquet", {"a": list(range(1000))})
    file.path.write_bytes(file.path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"a\.parquet: not readable as Parquet"):
        parquet_schema([file])


def test_a_damaged_page_is_refused_and_not_read_as_data(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"a": list(range(1000))})
    pq.write_table(table, path, compression="none", use_dictionary=False, write_page_checksum=True)
    content = bytearray(path.read_bytes())
    content[2000] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(DataError, match=r"a\.parquet: damaged: .*(CRC|checksum)"):
        all_rows(InputFile(path, "parquet"))


def test_text_in_parquet_that_is_not_utf8_is_an_error_row(tmp_path: Path) -> None:
    offsets = pa.py_buffer(b"\0\0\0\0\2\0\0\0\4\0\0\0")
    bad = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"ok\xff\xfe")])
    first, second = all_rows(parquet(tmp_path / "a.parquet", {"a": bad}))
    assert (first.values, first.error) == ({"a": "ok"}, None)
    assert second.error is not None


def test_a_value_that_python_cannot_hold_is_named_and_harms_no_other_row(tmp_path: Path) -> None:
    far = pa.array([0, 2**60, 1], pa.timestamp("ms"))
    rows = all_rows(parquet(tmp_path / "a.parquet", {"t": far, "a": ["x", "y", "z"]}))
    assert [row.values.get("a") for row in rows] == ["x", None, "z"]
    assert rows[1].error is not None
    assert rows[1].error.error_type == "bad_value"
    assert str(rows[1].error).startswith(f"{tmp_path / 'a.parquet'}, row 1: column 't' cannot be read: ")
