"""The rows of a job that are not on their way yet."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RowAhead:
    """num_shared_later: so many of its first tokens a later row begins with, too."""

    row: int
    num_shared_later: int


class RowsAhead:
    """rows, num_shared_later: [n], in the order in which they will be asked."""

    def __init__(self, rows: Ints, num_shared_later: Ints) -> None:
        self._rows = rows
        self._num_shared_later = num_shared_later
        self._next = 0

    @classmethod
    def as_they_stand(cls, wanted: npt.NDArray[np.bool_]) -> Self:
        """In the order of the input, with nothing known of what they share."""
        rows = np.flatnonzero(wanted)
        return cls(rows, np.zeros_like(rows))

    def __len__(self) -> int:
        return len(self._rows) - self._next

    @property
    def rows(self) -> Ints:
        return self._rows[self._next :]

    def next(self) -> RowAhead:
        """There is one; it is on its way now."""
        place, self._next = self._next, self._next + 1
        return RowAhead(int(self._rows[place]), int(self._num_shared_later[place]))
