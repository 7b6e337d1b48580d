"""Which rows of a job have which values of its fields in common, without the values."""

import hashlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from batchrunner.data.input.rows import Row, read_rows
from batchrunner.data.input.sources import find_inputs
from batchrunner.data.prompt.fields import SEPARATOR, name_text, value_text
from batchrunner.errors import RowError
from batchrunner.spec.job import JobSpec

_HASH_BYTES = 8


@dataclass(frozen=True, slots=True)
class FieldValues:
    """Which rows have equal values in which fields, without the values.

    codes: [num_rows, num_fields]; two rows have the same code in a field if their values read the same there.
    lengths: for each field, the characters of its `"name": value, ` by code; 0 where a row cannot be asked.
    name_lengths: [num_fields], the characters of `"name": `, which are part of those.
    """

    codes: npt.NDArray[np.int32]
    lengths: tuple[npt.NDArray[np.int32], ...]
    name_lengths: npt.NDArray[np.int32]


def read_fields(job: JobSpec) -> FieldValues:
    """Read the fields of all rows of a job once, in input order. Takes 4 bytes a cell, and a hash for each value.

    A row that cannot be read, or lacks a field, has codes of its own. Raises DataError for input that cannot be read
    as a whole.
    """
    assert job.fields is not None
    columns = [_Codes(name) for name in job.fields]
    for file in find_inputs(job.inputs):
        for rows in read_rows(file, list(job.fields)):
            for row in rows:
                _see(row, columns)
    return FieldValues(
        codes=np.stack([np.asarray(column.codes) for column in columns], axis=1),
        lengths=tuple(np.asarray(column.lengths) for column in columns),
        name_lengths=np.array([len(name_text(name)) for name in job.fields], np.int32),
    )


class _Codes:
    """One field: its values' codes, in order of appearance."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.codes = array("i")
        self.lengths = array("i")
        self._rest = len(name_text(name)) + len(SEPARATOR)
        self._known: dict[bytes, int] = {}

    def see(self, text: str) -> None:
        key = hashlib.blake2b(text.encode(), digest_size=_HASH_BYTES).digest()
        code = self._known.setdefault(key, len(self.lengths))
        if code == len(self.lengths):
            self.lengths.append(len(text) + self._rest)
        self.codes.append(code)

    def see_unreadable(self) -> None:
        self.codes.append(len(self.lengths))
        self.lengths.append(0)


def _see(row: Row, columns: Sequence[_Codes]) -> None:
    try:
        if row.error is not None:
            raise row.error
        texts = [value_text(row.values, column.name) for column in columns]
    except RowError:
        for column in columns:
            column.see_unreadable()
    else:
        for column, text in zip(columns, texts, strict=True):
            column.see(text)
