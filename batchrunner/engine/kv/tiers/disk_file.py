"""The file behind the disk tier: blocks of KV in the slots of one preallocated, memory-mapped file.

A slot's entry is zero from begin() until commit() writes it, last of all. So after a kill -9 every slot with a good
entry holds what was committed. Nothing is ever flushed: what a power cut takes away fails its checksum.
"""

import errno
import fcntl
import hashlib
import mmap
import os
import tempfile
import warnings
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from batchrunner.engine.kv.chain import KEY_BYTES
from batchrunner.engine.kv.tiers.disk_layout import (
    ENTRY_BYTES,
    HEADER_BYTES,
    MAGIC,
    MAX_NUM_USES,
    NO_ENTRY,
    Entry,
    Layout,
    UnusableFileError,
    checksum,
    read_header,
    unpack_entries,
)
from batchrunner.errors import StorageError, TierError

# Linux 5.14; the mmap module does not name them. They report a bad sector as an error, where touching the page would be
# a SIGBUS, and take no time that touching the pages would not take anyway.
_POPULATE_READ = 22
_POPULATE_WRITE = 23


@dataclass(frozen=True, slots=True)
class KeptBlock:
    """A block that an earlier run left in this slot, if is_intact() agrees."""

    slot: int
    key: bytes
    parent_key: bytes
    num_uses: int


class DiskFile:
    """num_slots blocks of block_bytes each. Threads may work on different slots at the same time.

    kept: what was found at opening; the payloads are not checked yet. is_kept: whether the next run will find the
    blocks of this one.
    """

    def __init__(self, file: IO[bytes], layout: Layout, kept: list[KeptBlock], *, is_kept: bool) -> None:
        """Use open(): file is as long as layout says."""
        self.num_slots = layout.num_slots
        self.block_bytes = layout.block_bytes
        self.kept = kept
        self.is_kept = is_kept
        self._layout = layout
        self._file = file
        self._map = mmap.mmap(file.fileno(), layout.num_bytes)
        self._bytes = np.frombuffer(self._map, np.uint8)
        self._begun: set[int] = set()

    @classmethod
    def open(cls, folder: Path, num_bytes: int, block_bytes: int, identity: str, *, keep: bool) -> "DiskFile":
        """Takes at most num_bytes of disk, and takes them now.

        keep: go on with the blocks that runs of the same identity left in folder. If their file cannot be used, a
        warning says so, and what is done instead. Raises StorageError.
        """
        layout = Layout.fitting(num_bytes, block_bytes)
        if layout.num_slots < 1:
            raise StorageError(
                f"engine.tiers.disk.size: {num_bytes:,} bytes hold not one block of {block_bytes:,} bytes; give at "
                f"least {Layout(1, block_bytes).num_bytes:,}, or leave the disk tier out"
            )
        digest = hashlib.sha256(identity.encode()).digest()
        path = folder / f"kv-{digest.hex()[:16]}.blocks"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with ExitStack() as on_error:
                kept_file = _open_kept(path) if keep else None
                file = on_error.enter_context(kept_file or tempfile.TemporaryFile(dir=folder, buffering=0))  # noqa: SIM115
                kept = _prepare(file, path, layout, digest)
                disk_file = cls(file, layout, kept, is_kept=kept_file is not None)
                on_error.pop_all()
                return disk_file
        except OSError as error:
            reason = error.strerror or error
            raise StorageError(f"{folder}: cannot make the file of engine.tiers.disk: {reason}") from error

    def begin(self, slot: int) -> NDArray[np.uint8]:
        """The payload to be written, [block_bytes]. Until commit() the slot holds no block. Raises StorageError."""
        self.discard(slot)
        try:
            self._populate(slot, _POPULATE_WRITE)
        except OSError as error:
            raise TierError(
                f"engine.tiers.disk: its file cannot be written: {error.strerror or error}; look after the disk, or "
                "leave the disk tier out, and run again"
            ) from error
        self._begun.add(slot)
        return self.payload(slot)

    def commit(self, slot: int, key: bytes, parent_key: bytes, num_uses: int) -> None:
        """The payload is written; the array that begin() gave must be left alone from now on."""
        assert slot in self._begun, f"slot {slot} was not begun"
        assert len(key) == len(parent_key) == KEY_BYTES
        self._begun.remove(slot)
        entry = Entry(key, parent_key, slot, min(num_uses, MAX_NUM_USES), checksum(self.payload(slot)))
        self._write_entry(slot, entry.pack())

    def set_num_uses(self, slot: int, num_uses: int) -> None:
        """Of the block in the slot, if there is one; its payload and checksum stay."""
        start = self._layout.entry_start(slot)
        entry = Entry.unpack(self._map[start : start + ENTRY_BYTES], slot)
        if entry is not None:
            self._write_entry(slot, entry._replace(num_uses=min(num_uses, MAX_NUM_USES)).pack())

    def payload(self, slot: int) -> NDArray[np.uint8]:
        """The payload, [block_bytes], to be read and not written: torch takes no array that is marked read-only."""
        assert not self._file.closed
        start = self._layout.payload_start(slot)
        return self._bytes[start : start + self.block_bytes]

    def is_intact(self, slot: int, key: bytes) -> bool:
        """Whether the slot holds the block of this key, as it was committed. Reads all of it."""
        payload, start = self.payload(slot), self._layout.entry_start(slot)
        entry = Entry.unpack(self._map[start : start + ENTRY_BYTES], slot)
        if entry is None or entry.key != key:
            return False
        try:
            self._populate(slot, _POPULATE_READ)
        except OSError:
            return False
        return checksum(payload) == entry.payload_checksum

    def discard(self, slot: int) -> None:
        """The slot holds no block any more, in this run or the next."""
        self._begun.discard(slot)
        self._write_entry(slot, NO_ENTRY)

    def close(self) -> None:
        """Without keep, the disk is free again once the last array of begin() and payload() is gone."""
        if self._file.closed:
            return
        self._bytes = np.empty(0, np.uint8)
        if self.is_kept:
            fcntl.flock(self._file, fcntl.LOCK_UN)  # the map's own descriptor would hold the lock
        with suppress(BufferError):  # an array is left; the map goes with it
            self._map.close()
        self._file.close()

    def _write_entry(self, slot: int, entry: bytes) -> None:
        start = self._layout.entry_start(slot)
        self._map[start : start + ENTRY_BYTES] = entry

    def _populate(self, slot: int, advice: int) -> None:
        """Raises OSError where touching the payload would end the process."""
        start = self._layout.payload_start(slot)
        before = start % mmap.PAGESIZE  # some machines' pages are larger than the file's
        try:
            self._map.madvise(advice, start - before, before + self.block_bytes)
        except OSError as error:
            if error.errno != errno.EINVAL:  # an older kernel
                raise


def _open_kept(path: Path) -> IO[bytes] | None:
    """The file at path, locked: one of ours, or an empty one. Else None, with a warning."""
    try:
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+b", buffering=0)
    except OSError as error:
        reason = f"it cannot be opened ({error.strerror})"
    else:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.pread(file.fileno(), len(MAGIC), 0) in (b"", MAGIC):
                return file
            reason = "it is no file of batchrunner's disk tier"
        except BlockingIOError:
            reason = "another run works with it"
        except OSError as error:
            reason = f"it cannot be locked or read ({error.strerror})"
        file.close()
    _warn(f"{path}: {reason}; the disk tier uses a temporary file instead and keeps nothing for the next run")
    return None


def _prepare(file: IO[bytes], path: Path, layout: Layout, digest: bytes) -> list[KeptBlock]:
    """Bring an empty file or one of ours to this layout. Killed in between, it leaves a file that is replaced."""
    descriptor = file.fileno()
    old_layout, old_entries = Layout(0, layout.block_bytes), b""
    num_bytes = os.fstat(descriptor).st_size
    if num_bytes:
        try:
            old_header = os.pread(descriptor, HEADER_BYTES, 0)
            old_layout = read_header(old_header, num_bytes, digest, layout.block_bytes)
            old_entries = os.pread(descriptor, old_layout.entries_bytes, old_layout.entries_start)
        except UnusableFileError as error:
            _warn(f"{path}: {error}; it is replaced, and no block of an earlier run is used")
            os.ftruncate(descriptor, 0)  # before our header is in it: then its entries would be taken for ours
            num_bytes = 0
    if num_bytes == 0:
        os.pwrite(descriptor, layout.header(digest), 0)
        os.fsync(descriptor)  # a power cut could leave a file without its magic, which stands in the way for ever
    _reserve(file, path, layout.num_bytes, num_bytes)
    if old_layout != layout:
        entries = old_entries[: layout.entries_bytes].ljust(layout.entries_bytes, b"\0")
        os.pwrite(descriptor, entries, layout.entries_start)
        os.pwrite(descriptor, layout.header(digest), 0)
        os.ftruncate(descriptor, layout.num_bytes)
    blocks = [
        KeptBlock(entry.slot, entry.key, entry.parent_key, entry.num_uses) for entry in unpack_entries(old_entries)
    ]
    kept = [block for block in blocks if block.slot < layout.num_slots]
    if len(kept) < len(blocks):
        num_lost = len(blocks) - len(kept)
        _warn(f"{path}: engine.tiers.disk.size has shrunk; {num_lost:,} of {len(blocks):,} kept blocks are dropped")
    return kept


def _reserve(file: IO[bytes], path: Path, num_bytes: int, num_bytes_before: int) -> None:
    """Reserve the holes of a copied file too: once the disk is full, to write there through the map is a SIGBUS."""
    try:
        os.posix_fallocate(file.fileno(), 0, num_bytes)
    except OSError as error:
        os.ftruncate(file.fileno(), num_bytes_before)
        raise StorageError(
            f"engine.tiers.disk.size: {path.parent} cannot hold a file of {num_bytes:,} bytes "
            f"({error.strerror or error}); give a smaller size or another folder, or leave the disk tier out"
        ) from error


def _warn(sentence: str) -> None:
    warnings.warn(sentence, stacklevel=4)
