"""The journal: an append-only file of records, each one whole or not there.

    file    magic (8 bytes) · record · record · …
    record  marker (4) · length (4) · CRC32C of length and payload (4) · payload (MessagePack)

A kill or a power cut can leave a torn record at the end; it is cut off and kept aside. A bad record with a good one
after it cannot come from a kill: the disk or a person changed the file, and nothing is guessed.
"""

import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import msgpack

from batchrunner.checkpoint.storage import Storage
from batchrunner.errors import DataError, StorageError

MAGIC = b"BRJOURN1"
MARKER = b"\xb7REC"
SYNC_SECONDS = 1.0  # the contract allows 2; a sync takes milliseconds
_HEAD = struct.Struct("<4sII")

Record = dict[str, Any]


class Journal:
    """One attempt's journal, for writing. Raises StorageError; after that it takes nothing more."""

    def __init__(self, path: Path, storage: Storage) -> None:
        self.path = path
        self._storage = storage
        self._failed = False
        self._is_dirty = True
        self._last_sync = time.monotonic()
        try:
            self._file = storage.create(path)
            storage.append(self._file, MAGIC)
        except OSError as error:
            raise StorageError(f"{path}: cannot create the journal: {error.strerror or error}") from error

    def append(self, record: Record) -> None:
        self._write(_encode(record))

    def sync(self) -> None:
        """Make all records durable."""
        self._check()
        self._last_sync = time.monotonic()
        if not self._is_dirty:
            return
        try:
            self._storage.sync(self._file)
        except OSError as error:
            self._failed = True
            raise StorageError(f"{self.path}: cannot make the journal durable: {error.strerror or error}") from error
        self._is_dirty = False

    @property
    def is_sync_due(self) -> bool:
        return time.monotonic() - self._last_sync >= SYNC_SECONDS

    def close(self) -> None:
        self._file.close()

    def _write(self, data: bytes) -> None:
        self._check()
        try:
            self._storage.append(self._file, data)
        except OSError as error:
            self._failed = True
            raise StorageError(f"{self.path}: cannot write the journal: {error.strerror or error}") from error
        self._is_dirty = True

    def _check(self) -> None:
        if self._failed:
            raise StorageError(f"{self.path}: the journal failed before and is not written again")


@dataclass(frozen=True, slots=True)
class JournalContents:
    """records: all whole records. torn: the bytes of a torn one at the end."""

    records: list[Record]
    torn: bytes


def read_journal(path: Path) -> JournalContents:
    """Raises DataError if the journal is damaged other than at its end."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StorageError(f"{path}: cannot read the journal: {error.strerror}") from error
    if not data.startswith(MAGIC):
        if len(data) < len(MAGIC):  # killed before the first write was through
            return JournalContents([], data)
        raise DataError(f"{path}: this is not a journal of batchrunner, or one of another version")
    records: list[Record] = []
    position = len(MAGIC)
    for payload, end in _records(data, position):
        records.append(msgpack.unpackb(payload))
        position = end
    torn = data[position:]
    if torn and _has_record(torn[1:]):
        raise DataError(
            f"{path}: damaged at byte {position}, with good records after it; this is not the trace of a kill. Restore "
            "the file, or remove the output folder to compute everything anew"
        )
    return JournalContents(records, torn)


def _encode(record: Record) -> bytes:
    payload: bytes = msgpack.packb(record)
    return _HEAD.pack(MARKER, len(payload), _checksum(payload)) + payload


def _checksum(payload: bytes) -> int:
    return int(google_crc32c.extend(google_crc32c.value(struct.pack("<I", len(payload))), payload))


def _records(data: bytes, position: int) -> Iterator[tuple[bytes, int]]:
    """(payload, position behind it) of each whole record from position on, up to the first bad one."""
    while position + _HEAD.size <= len(data):
        marker, length, checksum = _HEAD.unpack_from(data, position)
        end = position + _HEAD.size + length
        if marker != MARKER or end > len(data):
            return
        payload = data[position + _HEAD.size : end]
        if _checksum(payload) != checksum:
            return
        yield payload, end
        position = end


def _has_record(data: bytes) -> bool:
    """Whether a whole record begins anywhere in data."""
    position = data.find(MARKER)
    while position >= 0:
        if next(_records(data, position), None) is not None:
            return True
        position = data.find(MARKER, position + 1)
    return False
