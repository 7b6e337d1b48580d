"""Greedy Group Recursion on whole levels against the same one value at a time, as the paper has it."""

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrunner.plan import field_groups
from batchrunner.plan.field_groups import FieldTable, grouped_orders

NAME_LENGTH = 3


@st.composite
def tables(draw: st.DrawFn) -> FieldTable:
    """Rows that all differ; a value is the longer the higher its code."""
    num_fields = draw(st.integers(1, 5))
    row = st.tuples(*[st.integers(0, 3)] * num_fields)
    codes = np.array(draw(st.lists(row, min_size=1, max_size=20, unique=True)), np.int32)
    widths = draw(st.lists(st.integers(1, 20), min_size=num_fields, max_size=num_fields))
    lengths = (NAME_LENGTH + np.array(widths) * (1 + codes)).astype(np.int32)
    return FieldTable(codes, lengths, np.full(num_fields, NAME_LENGTH, np.int32))


class OneAtATime:
    """The recursion of the paper, plainly."""

    def __init__(self, table: FieldTable, fallback: Iterable[int]) -> None:
        self.codes, self.lengths = table.codes.tolist(), table.lengths.tolist()
        self.fallback = list(fallback)

    def orders(self, rows: list[int], fields: list[int]) -> dict[int, list[int]]:
        """Of these fields in each of these rows, which have all other fields in common."""
        common = [field for field in fields if len({self.codes[row][field] for row in rows}) == 1]
        fields = [field for field in fields if field not in common]
        values = {(field, self.codes[row][field]) for field in fields for row in rows}
        lengths = {value: self.common_length(self.rows_with(value, rows), fields) for value in values}
        found: dict[int, list[int]] = {}
        while True:
            savings = {value: lengths[value] * (len(self.rows_with(value, rows)) - 1) for value in values}
            best = min(values, key=lambda value: (-savings[value], value), default=None)
            if best is None or savings[best] <= 0:
                break
            taken = self.rows_with(best, rows)
            rest = [field for field in fields if field != best[0]]
            found |= {row: [*common, best[0], *order] for row, order in self.orders(taken, rest).items()}
            rows = [row for row in rows if row not in taken]
        return found | {row: common + [field for field in self.fallback if field in fields] for row in rows}

    def rows_with(self, value: tuple[int, int], rows: list[int]) -> list[int]:
        return [row for row in rows if self.codes[row][value[0]] == value[1]]

    def common_length(self, rows: list[int], fields: list[int]) -> int:
        return sum(self.lengths[rows[0]][f] for f in fields if len({self.codes[row][f] for row in rows}) == 1)


@settings(deadline=None)
@given(tables(), st.data())
def test_all_groups_at_once_are_ordered_as_one_value_at_a_time(table: FieldTable, data: st.DataObject) -> None:
    num_rows, num_fields = table.codes.shape
    fallback = data.draw(st.permutations(range(num_fields)))
    expected = OneAtATime(table, fallback).orders(list(range(num_rows)), list(range(num_fields)))
    assert grouped_orders(table, np.array(fallback, np.uint8)).tolist() == [expected[row] for row in range(num_rows)]


@pytest.mark.parametrize("bound", ["MAX_LEVELS", "MAX_ROUNDS"])
@settings(deadline=None)
@given(table=tables())
def test_bounds_leave_the_rest_to_the_fallback_and_lose_no_field(bound: str, table: FieldTable) -> None:
    num_rows, num_fields = table.codes.shape
    fallback = np.arange(num_fields, dtype=np.uint8)[::-1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(field_groups, bound, 1)
        orders = grouped_orders(table, fallback)
    assert np.sort(orders, axis=1).tolist() == [list(range(num_fields))] * num_rows
