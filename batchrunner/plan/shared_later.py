"""What of each row's prompt will be asked for again: the future that eviction goes by."""

import numpy as np
import numpy.typing as npt

from batchrunner.plan.prefix_order import PrefixOrder

Ints = npt.NDArray[np.int64]


def num_shared_later(order: PrefixOrder, positions: Ints) -> Ints:
    """positions: of order, as the rows run. For each in that order: how many of its first tokens a row that runs after
    it begins with, too. [n]

    Rows leave a list in the order in which they run; whom a row shares most with is beside it in what is left.
    """
    following = np.append(order.num_shared[1:], 0)
    if (np.diff(positions) == 1).all():
        return following[positions]
    num_rows = len(order)
    before, after = list(range(-1, num_rows - 1)), list(range(1, num_rows + 1))
    shared = [0, *order.num_shared[1:].tolist(), 0]  # with the one before it in the list
    found = []
    for position in positions.tolist():
        left, right = before[position], after[position]
        found.append(max(shared[position] if left >= 0 else 0, shared[right]))
        shared[right] = min(shared[position], shared[right])
        if left >= 0:
            after[left] = right
        if right < num_rows:
            before[right] = left
    return np.array(found, dtype=np.int64)
