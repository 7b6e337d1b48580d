"""In which order the fields of each row stand in its prompt, so that prompts share the longest beginnings.

Rows run sorted by their prompts, and what a prompt has in common with the one before is not computed again: what is
computed is the prefix tree of all prompts. Three orders of the fields are compared by the size of that tree: the one
given, the best one found for all rows alike, and one that is chosen row by row (field_groups.py). The smallest wins.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from batchrunner.plan.field_groups import FieldTable, Orders, first_rows, grouped_orders, split_groups


@dataclass(frozen=True, slots=True)
class FieldOrders:
    """orders: [num_rows, num_fields], for each row the indices of its fields in their order.

    The rest is in characters of the fields: those of all rows, and those that stood in the row before when the rows are
    sorted, with the order given, with the best order for all rows alike, and with the orders chosen. Names and values
    count as a whole: beginnings that two different values share are left out.
    """

    orders: Orders
    num_chars: int
    num_shared_as_given: int
    num_shared_in_one_order: int
    num_shared: int


def choose_field_orders(
    codes: npt.NDArray[np.int32], lengths: Sequence[npt.NDArray[np.int32]], name_lengths: npt.NDArray[np.int32]
) -> FieldOrders:
    """The order of fields in each row. Deterministic; rows with equal codes get equal orders.

    codes: [num_rows, num_fields], equal where the values are equal. lengths: for each field, the characters of its
    `"name": value, ` by code; 0 in a row that cannot be asked, which keeps the order given. name_lengths: [num_fields],
    how many of these characters are `"name": `.
    """
    cell_lengths = np.stack([of_code[column] for of_code, column in zip(lengths, codes.T, strict=True)], axis=1)
    asked = np.flatnonzero(cell_lengths.all(axis=1))
    # Equal rows add nothing to the tree, whatever their order.
    groups = np.zeros(len(asked), np.int32)
    for column in codes[asked].T:
        groups = split_groups(groups, column)
    distinct = asked[first_rows(groups)]
    table = FieldTable(codes[distinct], cell_lengths[distinct], name_lengths)

    given = np.arange(codes.shape[1], dtype=np.uint8)
    alike = _order_for_all(table)
    candidates = (
        np.broadcast_to(given, table.codes.shape),
        np.broadcast_to(alike, table.codes.shape),
        grouped_orders(table, alike),
    )
    sizes = [_tree_size(table, orders) for orders in candidates]
    orders = np.tile(given, (len(codes), 1))
    # Of equals the first: a prompt is not changed for nothing.
    orders[asked] = candidates[int(np.argmin(sizes))][groups]
    num_chars = int(cell_lengths.sum(dtype=np.int64))
    return FieldOrders(orders, num_chars, num_chars - sizes[0], num_chars - min(sizes[:2]), num_chars - min(sizes))


def _order_for_all(table: FieldTable) -> Orders:
    """One order for all rows: next always the field that saves most after those before it."""
    order: list[int] = []
    groups = np.zeros(len(table.codes), np.int32)
    while len(order) < table.codes.shape[1]:
        left = [field for field in range(table.codes.shape[1]) if field not in order]
        splits = [split_groups(groups, table.codes[:, field]) for field in left]
        saved = [
            int(
                table.lengths[:, field].sum(dtype=np.int64)
                - table.lengths[first_rows(split), field].sum(dtype=np.int64)
            )
            for field, split in zip(left, splits, strict=True)
        ]
        best = int(np.argmax(saved))
        if saved[best] == 0:
            return np.array(order + left, np.uint8)
        order.append(left[best])
        groups = splits[best]
    return np.array(order, np.uint8)


def _tree_size(table: FieldTable, orders: Orders) -> int:
    """The characters of the prefix tree of all rows, whose edges are names and values."""
    rows = np.arange(len(orders))
    groups = np.zeros(len(orders), np.int32)
    size = 0
    for fields in orders.T:
        groups = split_groups(groups, fields)
        first = first_rows(groups)
        size += int(table.name_lengths[fields[first]].sum(dtype=np.int64))
        groups = split_groups(groups, table.codes[rows, fields])
        first = first_rows(groups)
        value_lengths = table.lengths[first, fields[first]] - table.name_lengths[fields[first]]
        size += int(value_lengths.sum(dtype=np.int64))
    return size
