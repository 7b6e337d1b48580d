"""The order in which rows run: the depth-first order of their prefix tree, changed where that pays.

Two changes, both bounded in what they may cost of the sharing:

1. Rows that keep the arithmetic busy (long prompts, short answers) and rows that keep the memory busy (short prompts,
   long answers) run side by side: groups of rows, sorted by the ratio of the two, are taken from both ends so that both
   kinds of work advance alike (the dual scanner of BlendServe, arXiv 2411.16102).
2. A row whose answer is so long that it would be running alone in the end starts early enough (the longest first, as
   for machines in parallel; Graham, "Bounds on multiprocessing timing anomalies", 1969).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from batchrunner.plan.prefix_order import PrefixOrder

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

MAX_LOSS = 0.01  # of the tokens that are computed when everything is shared
BINS_PER_OCTAVE = 2  # groups whose ratios are closer than this stay in their order


@dataclass(frozen=True, slots=True)
class RowCosts:
    """What is expected of each row, in the order of the prefix tree: seconds of arithmetic, seconds of reading memory
    that run beside it (0: nothing runs beside anything), tokens of the answer. [n] each."""

    compute_seconds: Floats
    memory_seconds: Floats
    num_output: Floats


@dataclass(frozen=True, slots=True)
class RunOrder:
    """positions: of the prefix order, as they run. num_lost: so many tokens more than in that order are computed at
    most, if memory holds little more than what is in use."""

    positions: Ints
    num_lost: int


def balance(order: PrefixOrder, costs: RowCosts, num_running: int) -> RunOrder:
    """num_running: how many rows run at once."""
    if len(order) < 2:
        return RunOrder(np.arange(len(order)), 0)
    extra = order.num_shared_apart
    max_lost = int(MAX_LOSS * order.num_to_compute)
    positions = np.arange(len(order))
    for change in (_mixed, _long_ones_early):
        changed = change(positions, extra, costs, num_running, max_lost)
        if _num_lost(changed, extra, num_running) <= max_lost:
            positions = changed
    return RunOrder(positions, _num_lost(positions, extra, num_running))


def _mixed(positions: Ints, extra: Ints, costs: RowCosts, num_running: int, max_lost: int) -> Ints:
    """Groups of rows by the ratio of arithmetic to memory, taken from both ends."""
    num_rows = len(extra)
    if not costs.memory_seconds.any():
        return positions
    begins = _groups(extra, max_lost)
    compute = np.add.reduceat(costs.compute_seconds, begins)
    memory = np.add.reduceat(costs.memory_seconds, begins)
    ratios = np.log2((compute + 1e-12) / (memory + 1e-12))
    bins = np.round(BINS_PER_OCTAVE * ratios).astype(np.int64)
    if bins.min() == bins.max():
        return positions
    sizes = np.diff(np.append(begins, num_rows))
    chosen = np.argsort(-bins, kind="stable")
    starts = np.repeat(begins[chosen] - np.append(0, np.cumsum(sizes[chosen])[:-1]), sizes[chosen])
    return _from_both_ends(starts + np.arange(num_rows), costs)


def _groups(extra: Ints, max_lost: int) -> Ints:
    """Where groups begin: as many cuts as cost no more than max_lost in all, the cheapest first."""
    cheapest = np.argsort(extra[1:], kind="stable") + 1
    num_cuts = np.searchsorted(np.cumsum(extra[cheapest]), max_lost, side="right")
    return np.append(0, np.sort(cheapest[:num_cuts]))


def _from_both_ends(rows: Ints, costs: RowCosts) -> Ints:
    """The next row is the first one left if arithmetic is behind, the last one left if memory is."""
    compute = (costs.compute_seconds / costs.compute_seconds.sum())[rows].tolist()
    memory = (costs.memory_seconds / costs.memory_seconds.sum())[rows].tolist()
    left, right, ahead = 0, len(rows) - 1, 0.0
    taken = []
    while left <= right:
        if ahead <= 0:
            index, left = left, left + 1
        else:
            index, right = right, right - 1
        ahead += compute[index] - memory[index]
        taken.append(index)
    return rows[taken]


def _long_ones_early(positions: Ints, extra: Ints, costs: RowCosts, num_running: int, max_lost: int) -> Ints:
    """Every row starts where it stands, or earlier if its answer would end after all others.

    Those that would move farthest go first, as far as what they leave behind may cost.
    """
    if costs.num_output.min() == costs.num_output.max():
        return positions
    seconds, lengths = (costs.compute_seconds + costs.memory_seconds)[positions], costs.num_output[positions]
    starts = np.cumsum(seconds) - seconds
    num_steps = max(lengths.max(), lengths.sum() / num_running, 1.0)
    latest = seconds.sum() * (1.0 - lengths / num_steps)
    moved = positions[np.argsort(np.minimum(starts, latest), kind="stable")]
    num_earlier = (_ranks(positions) - _ranks(moved)).clip(min=0)
    left_behind = left_behind_by(extra)
    left_behind[num_earlier <= num_running] = 0
    farthest = np.argsort(-num_earlier, kind="stable")
    may_move = np.zeros(len(extra), dtype=np.bool_)
    may_move[farthest] = np.cumsum(left_behind[farthest]) <= max_lost - _num_lost(positions, extra, num_running)
    may_move |= left_behind == 0
    return positions[np.argsort(np.where(may_move[positions], np.minimum(starts, latest), starts), kind="stable")]


def left_behind_by(extra: Ints) -> Ints:
    """extra: num_shared_apart. What is lost at most if a row moves away from its neighbours, for each row."""
    lost: Ints = np.maximum(extra, np.append(extra[1:], 0))
    return lost


def _ranks(positions: Ints) -> Ints:
    ranks = np.empty(len(positions), dtype=np.int64)
    ranks[positions] = np.arange(len(positions))
    return ranks


def _num_lost(positions: Ints, extra: Ints, num_running: int) -> int:
    """What neighbours of the prefix tree share, where so many rows run between them that it may have left memory."""
    is_apart = np.abs(np.diff(_ranks(positions))) > num_running
    return int(extra[1:][is_apart].sum())
