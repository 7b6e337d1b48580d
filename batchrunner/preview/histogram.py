"""How many values lie in which range, with edges that people can read."""

from dataclasses import dataclass
from itertools import count

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Histogram:
    """counts[i] values are at least edges[i] and less than edges[i + 1]. edges has one entry more than counts."""

    edges: list[int]
    counts: list[int]

    @classmethod
    def of(cls, values: npt.NDArray[np.int64], max_bins: int = 20) -> "Histogram":
        """The histogram of values, which are numbers of tokens, from 0 to 10¹⁸. Without values: one empty bin.

        Edges are at equal distances or, if the fullest bin holds fewer values then, about twice the one before: data
        with a long tail would fill little more than one of the equal bins.
        """
        assert max_bins >= 1
        if not len(values):
            return cls([0, 1], [0])
        low, high = int(values.min()), int(values.max())
        assert low >= 0
        candidates = [_counted(values, edges(low, high, max_bins)) for edges in (_equal_edges, _doubling_edges)]
        return min(candidates, key=lambda histogram: max(histogram.counts))  # of equals the first

    @property
    def fullest(self) -> int:
        """The index of the bin with most values, the first of equals."""
        return self.counts.index(max(self.counts))


def _counted(values: npt.NDArray[np.int64], edges: list[int]) -> Histogram:
    return Histogram(edges, np.histogram(values, edges)[0].tolist())


def _equal_edges(low: int, high: int, max_bins: int) -> list[int]:
    """Multiples of the smallest of 1, 2, 5, 10, 20 … with which max_bins are enough."""
    for width in map(_round_number, count()):
        first, end = low // width, high // width + 1
        if end - first <= max_bins:
            return [index * width for index in range(first, end + 1)]
    raise AssertionError


def _doubling_edges(low: int, high: int, max_bins: int) -> list[int]:
    """0, 1, 2, 5, 10, 20 … as far as they are needed. If max_bins are too few, the lowest bins are one."""
    edges = [0, 1]
    for edge in map(_round_number, count(1)):
        if edges[-1] > high:
            break
        edges.append(edge)
    first = max(index for index, edge in enumerate(edges) if edge <= low)
    edges = edges[first:]
    return edges if len(edges) <= max_bins + 1 else [edges[0], *edges[-max_bins:]]


def _round_number(index: int) -> int:
    """Of 1, 2, 5, 10, 20, 50, 100 …"""
    return int((1, 2, 5)[index % 3] * 10 ** (index // 3))
