"""Compressed files: read to their end, and refused when damaged, cut off or bombs."""

import gzip
import random
from pathlib import Path

import pytest
import zstandard

from batchrunner.data.input import rows as rows_module
from batchrunner.data.input.zstd_stream import ZstdStream
from batchrunner.errors import DataError
from tests.data.input.input_files import all_rows, jsonl, values_of

MANY = b"".join(b'{"a": %d}\n' % (i * 7919) for i in range(20_000))
COMPRESSED = ["a.jsonl.gz", "a.jsonl.zst"]


def compress(name: str, content: bytes) -> bytes:
    return gzip.compress(content) if name.endswith(".gz") else zstandard.compress(content)


@pytest.mark.parametrize("name", COMPRESSED)
@pytest.mark.parametrize("num_parts", [1, 3])
def test_compressed_files_are_read_also_when_they_were_joined(tmp_path: Path, name: str, num_parts: int) -> None:
    file = jsonl(tmp_path / name, compress(name, b'{"a": 1}\n{"a": 2}\n') * num_parts)
    assert values_of(file) == [{"a": 1}, {"a": 2}] * num_parts


@pytest.mark.parametrize("name", COMPRESSED)
def test_a_line_may_reach_over_two_compressed_parts(tmp_path: Path, name: str) -> None:
    file = jsonl(tmp_path / name, compress(name, b'{"a": 1}\n{"a"') + compress(name, b": 2}\n"))
    assert values_of(file) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("name", COMPRESSED)
def test_what_is_not_compressed_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=f"{name}: unreadable after line 0: "):
        all_rows(jsonl(tmp_path / name, b'{"a": 1}\n{"a": 2}\n'))


@pytest.mark.parametrize("name", COMPRESSED)
def test_a_compressed_file_with_flipped_bytes_is_refused(tmp_path: Path, name: str) -> None:
    content = bytearray(compress(name, MANY))
    for index in range(len(content) // 2, len(content) // 2 + 40):
        content[index] ^= 0xFF
    with pytest.raises(DataError, match=f"{name}: unreadable after line"):
        all_rows(jsonl(tmp_path / name, bytes(content)))


def test_a_gzip_file_with_an_impossible_block_is_refused(tmp_path: Path) -> None:
    content = bytearray(gzip.compress(b'{"a": 1}\n'))
    content[10] = 0x07  # the kind of its first block
    with pytest.raises(DataError):
        all_rows(jsonl(tmp_path / "a.jsonl.gz", bytes(content)))


@pytest.mark.parametrize("cut", [3, 5000])
@pytest.mark.parametrize(
    "name",
    COMPRESSED,
)
def test_a_compressed_file_that_was_cut_off_is_refused_and_loses_no_row_in_silence(
    tmp_path: Path, name: str, cut: int
) -> None:
    with pytest.raises(DataError, match=f"{name}: unreadable after line"):
        all_rows(jsonl(tmp_path / name, compress(name, MANY)[:-cut]))


def test_a_second_zstd_frame_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    frame = zstandard.compress(b'{"a": 1}\n')
    with pytest.raises(DataError):
        all_rows(jsonl(tmp_path / "a.jsonl.zst", frame + frame[:-4]))


@pytest.mark.parametrize("name", COMPRESSED)
def test_a_file_that_unpacks_to_far_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    content = b'{"a": 1}\n' * 20_000
    file = jsonl(tmp_path / name, compress(name, content))
    monkeypatch.setattr(rows_module, "UNSUSPICIOUS_BYTES", len(content))
    assert len(all_rows(file)) == 20_000
    monkeypatch.setattr(rows_module, "UNSUSPICIOUS_BYTES", len(content) - 1)
    with pytest.raises(DataError, match=f"{name}: unpacks to over 200 times its size"):
        all_rows(file)


@pytest.mark.parametrize("name", COMPRESSED)
def test_the_bytes_of_a_line_that_is_too_long_count_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(rows_module, "UNSUSPICIOUS_BYTES", 1000)
    monkeypatch.setattr(rows_module, "MAX_LINE_BYTES", 1000)
    with pytest.raises(DataError, match="unpacks to over"):
        all_rows(jsonl(tmp_path / name, compress(name, b"x" * 1_000_000)))


@pytest.mark.parametrize("num_bytes", [0, 1, 4095, 4096, 4097, 1_000_000])
def test_a_zstd_stream_gives_all_bytes(tmp_path: Path, num_bytes: int) -> None:
    content = random.Random(num_bytes).randbytes(num_bytes)
    path = tmp_path / "a.zst"
    path.write_bytes(zstandard.compress(content) + zstandard.compress(content))
    with ZstdStream(path) as stream:
        assert stream.read() == content * 2
