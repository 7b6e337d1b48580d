"""Parquet columns of any type pass through unchanged, and only those that are asked for."""

import datetime
import decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchrunner.data.input import rows as rows_module
from batchrunner.data.input.columns import input_tables, parquet_schema
from batchrunner.data.input.rows import parquet_tables, read_rows
from tests.data.input.input_files import BIG, all_rows, parquet

MOMENT = datetime.datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=datetime.UTC)
RICH = {
    "int64": pa.array([2**63 - 1, None, BIG]),
    "uint64": pa.array([2**64 - 1, 0, None], pa.uint64()),
    "int8": pa.array([1, None, -128], pa.int8()),
    "half": pa.array([1.5, None, 0.0], pa.float16()),
    "float": pa.array([0.5, float("inf"), None], pa.float32()),
    "decimal": pa.array([decimal.Decimal("123456789012345678901234567890.12"), None, None], pa.decimal128(38, 2)),
    "wide": pa.array([decimal.Decimal("1.5"), None, None], pa.decimal256(60, 3)),
    "zone": pa.array([MOMENT, None, MOMENT], pa.timestamp("us", "Europe/Berlin")),
    "nanos": pa.array([1, None, 2**62], pa.timestamp("ns")),
    "far": pa.array([2**60, None, -(2**60)], pa.timestamp("ms")),
    "date": pa.array([datetime.date(2020, 1, 2), None, None]),
    "time": pa.array([1, None, 2], pa.time64("ns")),
    "duration": pa.array([1, None, 2], pa.duration("ns")),
    "binary": pa.array([b"\xff\x00", None, b""]),
    "large_binary": pa.array([b"\xff\x00", None, b""], pa.large_binary()),
    "fixed": pa.array([b"abcd", None, b"\xff\xff\xff\xff"], pa.binary(4)),
    "large_string": pa.array(["é", None, ""], pa.large_string()),
    "view": pa.array(["é", None, "x" * 40], pa.string_view()),
    "dictionary": pa.array(["a", None, "b"]).dictionary_encode(),
    "bool": pa.array([True, None, False]),
    "null": pa.nulls(3),
    "list": pa.array([[{"a": [1, None]}, None], None, []], pa.list_(pa.struct([("a", pa.list_(pa.int32()))]))),
    "fixed_list": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int32(), 2)),
    "struct": pa.array([{"a": {"b": None}}, {"a": {"b": 1}}, None], pa.struct([("a", pa.struct([("b", pa.int16())]))])),
    "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    "uuid": pa.array([b"0123456789abcdef", None, None], pa.uuid()),
    "a.b": pa.array([1, 2, 3]),
    "": pa.array(["no name", None, ""]),
}


@pytest.mark.parametrize("batch_rows", [1, 2, 100])
@pytest.mark.parametrize("name", RICH)
def test_a_parquet_column_of_any_type_passes_through_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, batch_rows: int
) -> None:
    monkeypatch.setattr(rows_module, "BATCH_ROWS", batch_rows)
    file = parquet(tmp_path / "a.parquet", {name: RICH[name]})
    schema = parquet_schema([file])
    table = pa.concat_tables(input_tables([file], schema, frozenset()))
    pq.write_table(table, tmp_path / "out.parquet")
    before, after = pq.read_table(file.path), pq.read_table(tmp_path / "out.parquet")
    assert after.schema == before.schema
    assert after[name].combine_chunks().equals(RICH[name]) or after[name].to_pylist() == RICH[name].to_pylist()


def test_only_the_columns_asked_for_are_read(tmp_path: Path) -> None:
    file = parquet(tmp_path / "a.parquet", {"a": [1], "b": [2], "a.b": [3], "s": [{"x": 1, "y": 2}]})
    assert [list(table.column_names) for table in parquet_tables(file, ["b", "a.b"])] == [["b", "a.b"]]
    assert [row.values for batch in read_rows(file, ["s", "none"]) for row in batch] == [{"s": {"x": 1, "y": 2}}]


def test_rows_are_counted_also_when_no_column_is_needed(tmp_path: Path) -> None:
    file = parquet(tmp_path / "a.parquet", {"a": [1, 2, 3]})
    assert [row.values for batch in read_rows(file, []) for row in batch] == [{}, {}, {}]
    assert sum(table.num_rows for table in input_tables([file], pa.schema([]), frozenset())) == 3


def test_a_moment_that_python_cannot_hold_does_not_end_the_job(tmp_path: Path) -> None:
    file = parquet(tmp_path / "a.parquet", {"t": RICH["far"], "a": ["x", "y", "z"]})
    assert [row.values["a"] for row in all_rows(file) if row.error is None] in (["y"], ["x", "y", "z"])
