"""Read a .zst file as a stream of bytes, and notice when it was cut off.

zstandard's own reader ends a cut file as if it were whole, and the rows after the cut would be lost in silence.
"""

import io
from pathlib import Path
from typing import Any

import zstandard

# One block of 4 bytes may unpack to 128 KiB, and a piece is unpacked as a whole: this bounds it to 128 MiB.
PIECE_BYTES = 4096


class ZstdStream(io.RawIOBase):
    """The unpacked bytes of all frames. Raises EOFError at the end of a cut file, ZstdError for a damaged one."""

    def __init__(self, path: Path) -> None:
        self._packed = path.open("rb")
        self._frame: Any = None  # the frame that is being unpacked
        self._unpacked = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._unpacked and self._unpack_piece():
            pass
        num_bytes = min(len(buffer), len(self._unpacked))
        buffer[:num_bytes] = self._unpacked[:num_bytes]
        self._unpacked = self._unpacked[num_bytes:]
        return num_bytes

    def close(self) -> None:
        self._packed.close()
        super().close()

    def _unpack_piece(self) -> bool:
        """Unpack some more bytes, which may be none; False at the end of the file."""
        rest = self._frame.unused_data if self._frame is not None and self._frame.eof else b""
        piece = rest or self._packed.read(PIECE_BYTES)
        if not piece:
            if self._frame is not None and not self._frame.eof:
                raise EOFError("the file was cut off within its last frame")
            return False
        if self._frame is None or self._frame.eof:
            self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._unpacked = memoryview(self._frame.decompress(piece))
        return True
