"""An order of prompts that is made piece by piece: rows that are equal so far are told apart by their next pieces."""

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from batchrunner.identity import TOKEN_BYTES
from batchrunner.plan.prompt_pieces import PIECE_TOKENS, Ints

SORTED_BY = pa.schema([("tie", pa.int64()), ("piece", pa.large_binary()), ("row", pa.int64())])
SETTLED = -1


class TiedRows:
    """The order as far as the prompts have been compared.

    A tie is a set of rows whose prompts are equal up to there. It holds neighbouring places of the order, and its
    number is the first of them. rows and num_shared [num_rows], by place, are a PrefixOrder's once no tie is left.
    """

    def __init__(self, rows: Ints) -> None:
        """All are tied. rows: numbers, none negative or there twice; an array as long as the greatest is kept."""
        self.rows = rows.copy()
        self.num_shared = np.zeros(len(rows), dtype=np.int64)
        self._places = np.arange(len(rows))  # of all tied rows, ascending
        self._tie_of_row = np.zeros(rows.max(initial=-1) + 1, dtype=np.int64)

    @property
    def num_tied(self) -> int:
        return len(self._places)

    def to_sort(self, pieces: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Of these pieces those of tied rows, each with its tie: SORTED_BY."""
        for batch in pieces:
            ties = self._tie_of_row[batch["row"].to_numpy()]
            is_tied = pa.array(ties != SETTLED)
            columns = [pa.array(ties), batch["piece"], batch["row"]]
            yield pa.record_batch([column.filter(is_tied) for column in columns], schema=SORTED_BY)

    def settle(self, pieces: Iterable[pa.RecordBatch]) -> None:
        """Take the next piece of each tied row, in the order of SORTED_BY. Those that equal a full piece stay tied."""
        stays_tied = np.zeros(self.num_tied, dtype=np.bool_)  # with the one before it
        begin = 0
        last = SORTED_BY.empty_table().to_batches()
        for batch in pieces:
            end = begin + batch.num_rows
            num_equal = _num_equal(pa.concat_batches([*last, batch]))[-batch.num_rows :]
            places = self._places[begin:end]
            self.rows[places] = batch["row"].to_numpy()
            self.num_shared[places] += num_equal
            stays_tied[begin:end] = num_equal == PIECE_TOKENS
            begin, last = end, [batch.slice(batch.num_rows - 1)]
        assert begin == self.num_tied, "a tied row had no next piece"
        self._keep(stays_tied)

    def _keep(self, stays_tied: npt.NDArray[np.bool_]) -> None:
        numbers = np.maximum.accumulate(np.where(stays_tied, 0, self._places))
        is_tied = stays_tied.copy()
        is_tied[:-1] |= stays_tied[1:]
        self._tie_of_row[self.rows[self._places]] = np.where(is_tied, numbers, SETTLED)
        self._places = self._places[is_tied]


def _num_equal(batch: pa.RecordBatch) -> Ints:
    """Tokens that each piece has in common with the beginning of the one before it in its tie; 0 for the first."""
    ties = batch["tie"].to_numpy()
    lengths = pc.binary_length(batch["piece"]).to_numpy() // TOKEN_BYTES
    tokens = np.zeros((batch.num_rows, PIECE_TOKENS), dtype=np.uint32)
    is_token = np.arange(PIECE_TOKENS) < lengths[:, None]
    tokens[is_token] = np.frombuffer(batch["piece"].buffers()[2], dtype=np.uint32, count=lengths.sum())
    differs = np.ones((batch.num_rows - 1, PIECE_TOKENS + 1), dtype=np.bool_)
    np.not_equal(tokens[1:], tokens[:-1], out=differs[:, :PIECE_TOKENS])
    num_equal = np.minimum(differs.argmax(axis=1), np.minimum(lengths[1:], lengths[:-1]))
    num_equal[ties[1:] != ties[:-1]] = 0
    return np.concatenate([[0], num_equal])
