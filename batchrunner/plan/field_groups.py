"""Orders of fields row by row: Greedy Group Recursion (GGR).

"Optimizing LLM Queries in Relational Data Analytics Workloads" (arXiv 2403.05821): of all values of all fields, take
the one whose rows save the most if it comes first. Those rows begin with it and are ordered among themselves by the
fields they have left; the other rows go on without them. The paper does this one value at a time. Here all groups of a
level are worked on at once, and of a group all values are taken that are the best one for each of their rows; what a
value saves only shrinks as rows leave, so that one at a time would take the same ones.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Orders = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.integer]
MAX_LEVELS = 16  # choices along a row; fields after them stand in the fallback's order
MAX_ROUNDS = 64  # of a level; rows that are undecided then are left to the fallback


@dataclass(frozen=True, slots=True)
class FieldTable:
    """Rows that all differ.

    codes: [num_rows, num_fields], equal in a field where the values are equal. lengths: [num_rows, num_fields], the
    characters of `"name": value, `. name_lengths: [num_fields], those of `"name": `.
    """

    codes: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int32]
    name_lengths: npt.NDArray[np.int32]


def split_groups(groups: Integers, labels: Integers) -> npt.NDArray[np.int32]:
    """The groups of rows that are in one group and have one label, numbered from 0 as they appear."""
    keys = groups.astype(np.int64) * (labels.max(initial=0) + 1) + labels
    found: npt.NDArray[np.int32] = pa.array(keys).dictionary_encode().indices.to_numpy()
    return found


def first_rows(groups: Integers) -> npt.NDArray[np.intp]:
    """The first row of each group. Groups are numbered from 0 as they appear."""
    return np.flatnonzero(np.diff(np.maximum.accumulate(groups), prepend=-1))


def grouped_orders(table: FieldTable, fallback: Orders) -> Orders:
    """Each row's own order, [num_rows, num_fields]. Fields in which nothing is shared come last, as in fallback.

    fallback: [num_fields].
    """
    num_rows, num_fields = table.codes.shape
    unplaced = MAX_LEVELS * (num_fields + 1)
    ranks = np.empty((num_rows, num_fields), np.int32)
    ranks[:, fallback] = unplaced + np.arange(num_fields)
    rows, groups = np.arange(num_rows), np.zeros(num_rows, np.int32)
    for level in range(MAX_LEVELS):
        rank = level * (num_fields + 1)
        values = np.stack([split_groups(groups, table.codes[rows, field]) for field in range(num_fields)], axis=1)
        is_open = ranks[rows] >= unplaced
        # What a whole group has in common comes first; the fields that the last choice determines are among it.
        is_common = is_open & (_counts(values) == np.bincount(groups)[groups][:, None])
        ranks[rows] = np.where(is_common, rank + np.arange(num_fields), ranks[rows])
        is_open &= ~is_common
        choices = _choose(values, _common_lengths(values, table.lengths[rows], is_open))
        chosen = np.flatnonzero(choices >= 0)
        if not len(chosen):
            break
        rows, choices = rows[chosen], choices[chosen]
        ranks[rows, choices] = rank + num_fields
        groups = split_groups(choices, values[chosen, choices])
    return ranks.argsort(axis=1, kind="stable").astype(np.uint8)


def _counts(values: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """How many rows have the value of each cell, in its field."""
    return np.stack([np.bincount(column)[column] for column in values.T], axis=1)


def _common_lengths(
    values: npt.NDArray[np.int32], lengths: npt.NDArray[np.int32], is_open: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """For each cell what the rows with its value have in common: its own characters and those of fields it determines.

    Only open fields count. The others are the same in all rows of a group and determine none: they have 0.
    """
    common = np.zeros(values.shape, np.int64)
    for field, column in enumerate(values.T):
        differs = values != values[first_rows(column)[column]]
        by_value = np.argsort(column, kind="stable")
        sizes = np.bincount(column)
        begins = sizes.cumsum() - sizes
        varies = np.logical_or.reduceat(differs[by_value], begins, axis=0)[column]
        common[:, field] = np.where(is_open & ~varies, lengths, 0).sum(axis=1)
    return common


def _choose(values: npt.NDArray[np.int32], common: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The field that each row begins with; -1 where it shares no value with a row that is left."""
    choices = np.full(len(values), -1)
    rows = np.arange(len(values))
    for _ in range(MAX_ROUNDS):
        counts = _counts(values[rows])
        savings = common[rows] * (counts - 1)
        wishes = savings.argmax(axis=1)
        is_agreed = np.zeros(len(rows), np.bool_)
        for field in range(values.shape[1]):
            wishing = np.flatnonzero(wishes == field)
            wanted = values[rows[wishing], field]
            is_agreed[wishing] = np.bincount(wanted)[wanted] == counts[wishing, field]
        is_useful = savings.max(axis=1) > 0
        taken = is_agreed & is_useful
        choices[rows[taken]] = wishes[taken]
        rows = rows[is_useful & ~is_agreed]
        if not len(rows):
            break
    return choices
