"""Prompts that are known whole before they run: of those the last token is computed once more, for its logits."""

import numpy as np
import numpy.typing as npt

from batchrunner.plan.prefix_order import PrefixOrder

Ints = npt.NDArray[np.int64]


def num_known_whole(order: PrefixOrder, positions: Ints) -> int:
    """positions: of order, as the rows run. How many prompts others that run before them begin with, or are.

    In the order of the prefix tree itself these are the rows whose prompt another row has, too.
    """
    num_shared, num_tokens = order.num_shared, order.num_tokens
    num_equal = int(((num_shared == num_tokens)[1:] & (np.diff(num_tokens) == 0)).sum())
    is_beginning = np.append(num_shared[1:], 0) == num_tokens
    if num_equal == is_beginning.sum() or (np.diff(positions) == 1).all():
        return num_equal  # no prompt goes on from another one, or those that do run after it
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[positions] = np.arange(len(order))
    return num_equal + _num_overtaken(order, ranks)


def _num_overtaken(order: PrefixOrder, ranks: Ints) -> int:
    """Prompts, equal ones counted once, of which a longer one runs before all. One pass; a stack of prompts that the
    last place goes on from, the shortest first: [tokens, earliest rank of its own, earliest rank of a longer one]."""
    count, never = 0, len(order)
    open_ones: list[list[int]] = []

    def close(shared: int) -> int:
        nonlocal count
        earliest = never
        while open_ones and open_ones[-1][0] > shared:
            _, own, longer = open_ones.pop()
            longer = min(longer, earliest)
            count += longer < own
            earliest = min(own, longer)
            if open_ones:
                open_ones[-1][2] = min(open_ones[-1][2], earliest)
        return count

    for shared, size, rank in zip(order.num_shared.data, order.num_tokens.data, ranks.data, strict=True):
        close(shared)
        if open_ones and open_ones[-1][0] == size == shared:
            open_ones[-1][1] = min(open_ones[-1][1], rank)
        else:
            open_ones.append([size, rank, never])
    return close(-1)
