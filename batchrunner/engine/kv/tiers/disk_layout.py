"""What the bytes of the disk tier's file mean.

    page 0     magic · version · digest of the identity · block_bytes · num_slots · CRC32C of these
    payloads   slot 0 · slot 1 · …     each begins on a page
    entries    slot 0 · slot 1 · …     key · parent_key · slot · num_uses · CRC32C of the payload · CRC32C of these

The entries lie together, so that opening a file reads none of the payloads; they lie at the end, so that a file can
grow and its payloads stay where they are.
"""

import struct
from dataclasses import dataclass
from typing import NamedTuple

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from batchrunner.engine.kv.chain import KEY_BYTES

MAGIC = b"BRKVTIER"
VERSION = 1
PAGE = 4096
MAX_NUM_USES = 2**32 - 1
_HEADER = struct.Struct("<8sI32sQQ")
_ENTRY = struct.Struct(f"<{KEY_BYTES}s{KEY_BYTES}sQII")
_CHECKSUM = struct.Struct("<I")
HEADER_BYTES = _HEADER.size + _CHECKSUM.size
ENTRY_BYTES = _ENTRY.size + _CHECKSUM.size
NO_ENTRY = bytes(ENTRY_BYTES)


class UnusableFileError(Exception):
    """Says what is wrong with the file, as a clause."""


def checksum(data: bytes | NDArray[np.uint8]) -> int:
    """CRC32C, 12 GB/s; of an array without a copy (the binding refuses a memoryview and an mmap)."""
    return int(google_crc32c.value(data))


@dataclass(frozen=True, slots=True)
class Layout:
    num_slots: int
    block_bytes: int

    @classmethod
    def fitting(cls, num_bytes: int, block_bytes: int) -> "Layout":
        """As many slots as num_bytes hold."""
        return cls((num_bytes - PAGE) // (cls(1, block_bytes).num_bytes - PAGE), block_bytes)

    @property
    def num_bytes(self) -> int:
        return self.entries_start + self.entries_bytes

    @property
    def entries_start(self) -> int:
        return PAGE + self.num_slots * self._stride

    @property
    def entries_bytes(self) -> int:
        return self.num_slots * ENTRY_BYTES

    @property
    def _stride(self) -> int:
        return -(-self.block_bytes // PAGE) * PAGE

    def payload_start(self, slot: int) -> int:
        assert 0 <= slot < self.num_slots
        return PAGE + slot * self._stride

    def entry_start(self, slot: int) -> int:
        assert 0 <= slot < self.num_slots
        return self.entries_start + slot * ENTRY_BYTES

    def header(self, digest: bytes) -> bytes:
        header = _HEADER.pack(MAGIC, VERSION, digest, self.block_bytes, self.num_slots)
        return header + _CHECKSUM.pack(checksum(header))


def read_header(header: bytes, num_bytes: int, digest: bytes, block_bytes: int) -> Layout:
    """The layout of a file that begins with MAGIC, of num_bytes in all. Raises UnusableFileError."""
    header = header.ljust(HEADER_BYTES, b"\0")
    _, version, its_digest, its_block_bytes, num_slots = _HEADER.unpack_from(header)
    if version != VERSION:
        raise UnusableFileError("it is of another version of batchrunner, or damaged")
    layout = Layout(num_slots, its_block_bytes)
    if header != layout.header(its_digest):
        raise UnusableFileError("its header is damaged")
    if (its_digest, its_block_bytes) != (digest, block_bytes):
        raise UnusableFileError("it holds blocks of another model or size")
    if num_bytes != layout.num_bytes:
        raise UnusableFileError("it is cut off or unfinished")
    return layout


class Entry(NamedTuple):
    key: bytes
    parent_key: bytes
    slot: int
    num_uses: int
    payload_checksum: int

    def pack(self) -> bytes:
        entry = _ENTRY.pack(*self)
        return entry + _CHECKSUM.pack(checksum(entry))

    @classmethod
    def unpack(cls, data: bytes, slot: int) -> "Entry | None":
        """None if this is no entry of this slot, or not a whole one."""
        if len(data) < ENTRY_BYTES or data == NO_ENTRY:
            return None
        if _CHECKSUM.pack(checksum(data[: _ENTRY.size])) != data[_ENTRY.size :]:
            return None
        entry = cls(*_ENTRY.unpack_from(data))
        return entry if entry.slot == slot else None


def unpack_entries(data: bytes) -> list[Entry]:
    """The good ones."""
    starts = range(0, len(data), ENTRY_BYTES)
    entries = (Entry.unpack(data[start : start + ENTRY_BYTES], start // ENTRY_BYTES) for start in starts)
    return [entry for entry in entries if entry is not None]
