"""Prompts cut into pieces of equal length, on disk, to be read one piece of each prompt at a time.

A row of pieces weighs little whatever its prompt weighs, so a sort of them fits in memory that is known beforehand.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from batchrunner.identity import TOKEN_BYTES

PIECE_TOKENS = 64
PIECE_BYTES = PIECE_TOKENS * TOKEN_BYTES
SCHEMA = pa.schema([("row", pa.int64()), ("piece", pa.large_binary())])

Ints = npt.NDArray[np.int64]


class PromptPieces:
    """Piece k of a prompt holds its tokens from k · PIECE_TOKENS on; the last one is shorter, perhaps empty.

    rows: row numbers [num_prompts], as they came. num_tokens: of their prompts.
    """

    def __init__(self, path: Path, batches: Iterable[pa.RecordBatch]) -> None:
        """Write all pieces to path, a new file. Raises OSError, and what reading `batches` raises."""
        self._path = path
        self._levels: list[list[int]] = []  # for each k, the numbers of the batches in the file that hold pieces k
        rows: list[Ints] = []
        num_tokens: list[Ints] = []
        num_written = 0
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
            for batch in batches:
                lengths = pc.binary_length(batch["prompt"]).to_numpy()
                rows.append(batch["row"].to_numpy().copy())  # a view would keep the batch
                num_tokens.append(lengths // TOKEN_BYTES)
                for level, pieces in enumerate(_cut(batch, lengths)):
                    if level == len(self._levels):
                        self._levels.append([])
                    self._levels[level].append(num_written)
                    writer.write_batch(pieces)
                    num_written += 1
        self.rows = np.concatenate([np.empty(0, np.int64), *rows])
        self.num_tokens = np.concatenate([np.empty(0, np.int64), *num_tokens])

    def read(self, level: int) -> Iterator[pa.RecordBatch]:
        """Columns row and piece, of all prompts that have a piece of this number."""
        with pa.OSFile(str(self._path)) as source:
            file = pa.ipc.open_file(source)
            for number in self._levels[level]:
                yield file.get_batch(number)


def _cut(batch: pa.RecordBatch, lengths: Ints) -> Iterator[pa.RecordBatch]:
    """Pieces 0, 1, … of the prompts that have them; lengths are in bytes."""
    for begin in range(0, int(lengths.max(initial=0)) + 1, PIECE_BYTES):
        has_piece = pa.array(lengths >= begin)
        pieces = pc.binary_slice(batch["prompt"], begin, begin + PIECE_BYTES)
        yield pa.record_batch([batch["row"].filter(has_piece), pieces.filter(has_piece)], schema=SCHEMA)
