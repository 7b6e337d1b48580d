"""The journal: whole records or none, whatever happens to the file."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrunner.checkpoint.journal import MAGIC, MARKER, Journal, read_journal
from batchrunner.checkpoint.storage import Storage
from batchrunner.errors import DataError, StorageError

RECORDS: list[dict[str, Any]] = [
    {"kind": "start", "parts": []},
    {"kind": "progress", "id": b"\x00" * 16, "at": 0, "ids": [1, 2, 3]},
    {"kind": "finished", "id": MARKER * 4, "text": "a marker inside a payload is no record"},
    {"kind": "finished", "id": b"\xff" * 16, "text": None, "error": "ünïcode"},
]


def write(path: Path, records: list[dict[str, Any]]) -> list[int]:
    """Write a journal; returns the file's size after each record."""
    journal = Journal(path, Storage())
    sizes = []
    for record in records:
        journal.append(record)
        sizes.append(path.stat().st_size)
    journal.sync()
    journal.close()
    return sizes


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write(tmp_path / "j", RECORDS)
    contents = read_journal(tmp_path / "j")
    assert contents.records == RECORDS
    assert contents.torn == b""


def test_a_file_cut_anywhere_gives_the_records_before_the_cut(tmp_path: Path) -> None:
    path = tmp_path / "j"
    sizes = write(path, RECORDS)
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        contents = read_journal(path)
        num_whole = sum(size <= length for size in sizes)
        assert contents.records == RECORDS[:num_whole]
        assert bool(contents.torn) == (length not in (*sizes, len(MAGIC), 0))


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_changed_byte_is_never_read_as_data(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("journal") / "j"
    sizes = write(path, RECORDS)
    content = bytearray(path.read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    if position >= sizes[-2] and position >= len(MAGIC):
        contents = read_journal(path)  # in the last record it looks like a torn one
        assert contents.records == RECORDS[:-1]
        assert contents.torn
    else:
        with pytest.raises(DataError):
            read_journal(path)


@given(records=st.lists(st.dictionaries(st.text(), st.one_of(st.integers(-(2**60), 2**60), st.binary(), st.text()))))
@settings(max_examples=50, deadline=None)
def test_any_record_comes_back(tmp_path_factory: pytest.TempPathFactory, records: list[dict[str, Any]]) -> None:
    path = tmp_path_factory.mktemp("journal") / "j"
    write(path, records)
    assert read_journal(path).records == records


def test_another_file_is_not_taken_for_a_journal(tmp_path: Path) -> None:
    (tmp_path / "j").write_text("this is no journal")
    with pytest.raises(DataError, match="not a journal"):
        read_journal(tmp_path / "j")


def test_an_existing_journal_is_never_written_over(tmp_path: Path) -> None:
    write(tmp_path / "j", RECORDS)
    with pytest.raises(StorageError, match="cannot create"):
        Journal(tmp_path / "j", Storage())


class FailingSync(Storage):
    num_syncs = 0

    def sync(self, file: Any) -> None:
        self.num_syncs += 1
        raise OSError(5, "Input/output error")


def test_a_failed_sync_is_not_tried_again(tmp_path: Path) -> None:
    storage = FailingSync()
    journal = Journal(tmp_path / "j", storage)
    journal.append(RECORDS[0])
    with pytest.raises(StorageError, match="Input/output error"):
        journal.sync()
    for call in (journal.sync, lambda: journal.append(RECORDS[1])):
        with pytest.raises(StorageError, match="failed before"):
            call()
    assert storage.num_syncs == 1
    journal.close()
