"""The tree of prefixes that an order of prompts implies, without building it."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from batchrunner.plan.prefix_order import PrefixOrder
from batchrunner.plan.prompt_pieces import Ints

CUT_SLACK = 0.2  # of a part's weight, to either side of where an even cut would be


@dataclass(frozen=True, slots=True)
class Subtree:
    """The rows at places [first, end) of the order share their first `depth` tokens, and no other row has them; with
    some other row they share their first `parent_depth`, and with none more."""

    first: int
    end: int
    depth: int
    parent_depth: int

    @property
    def num_rows(self) -> int:
        return self.end - self.first

    @property
    def num_saved(self) -> int:
        """Tokens that need not be computed again because the tokens from parent_depth to depth are shared."""
        return (self.num_rows - 1) * (self.depth - self.parent_depth)


def subtrees(order: PrefixOrder) -> Iterator[Subtree]:
    """Every prefix that at least two prompts have and none of them goes on from alone: children before their parents.

    A prompt that others begin with is a row of the subtree it is the prefix of. These are the intervals of an LCP array
    (Abouelhoda, Kurtz, Ohlebusch 2004), found in one pass; the root, which shares nothing, is left out.
    """
    open_ones = [(0, 0)]  # depth and first of the subtrees that hold the last place seen, from the root on
    num_shared = order.num_shared.data  # gives one int at a time, where tolist() would hold them all
    for place in range(1, len(order) + 1):
        shared = num_shared[place] if place < len(order) else 0
        first = place - 1
        while open_ones[-1][0] > shared:
            depth, first = open_ones.pop()
            yield Subtree(first, place, depth, max(shared, open_ones[-1][0]))
        if open_ones[-1][0] < shared:
            open_ones.append((shared, first))


def top_prefixes(order: PrefixOrder, count: int) -> list[Subtree]:
    """The subtrees that save most, greatest first; only `count` are held at a time."""
    return heapq.nlargest(count, subtrees(order), key=lambda subtree: subtree.num_saved)


@dataclass(frozen=True, slots=True)
class CutPoints:
    """Consecutive parts of an order. Part k holds the places [bounds[k], bounds[k + 1]).

    bounds: int64 [num_parts + 1], from 0 to num_rows. weights: float64 [num_parts]. num_lost: tokens that are computed
    once more than in one piece, because the rows on both sides of a cut begin with them.
    """

    bounds: Ints
    weights: npt.NDArray[np.float64]
    num_lost: int


def cut_points(order: PrefixOrder, num_parts: int, weights: npt.NDArray[np.float64]) -> CutPoints:
    """Cut the order into parts of about equal weight, where little is shared.

    weights: float64 [num_rows], by place in the order, not negative. Each cut is made where neighbours share least
    within CUT_SLACK of the even cut, the nearest to it of equals. A row heavier than that goes to the nearer side, so
    that a part can be empty.
    """
    assert num_parts >= 1 and len(weights) == len(order)
    before = np.concatenate([[0.0], np.cumsum(weights)])  # weight before each place
    num_shared = np.append(order.num_shared, 0)  # a cut at the very end loses nothing
    part = before[-1] / num_parts
    bounds = [0]
    for number in range(1, num_parts):
        even = number * part
        begin = int(np.searchsorted(before, even - CUT_SLACK * part, side="left"))
        end = int(np.searchsorted(before, even + CUT_SLACK * part, side="right"))
        if begin == end:  # one row is heavier than the slack
            begin += 1 if before[begin] - even < even - before[begin - 1] else 0
            begin, end = begin - 1, begin
        distance = np.abs(before[begin:end] - even)
        bounds.append(begin + int(np.lexsort([distance, num_shared[begin:end]])[0]))
    bounds.append(len(order))
    cuts = np.unique([bound for bound in bounds[1:-1] if 0 < bound < len(order)]).astype(np.int64)
    return CutPoints(np.array(bounds), np.diff(before[bounds]), int(num_shared[cuts].sum()))
