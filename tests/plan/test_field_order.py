"""Orders of fields: every field once in every row, never worse than the order given, and better where rows differ."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrunner.data.prompt.fields import fields_text, name_text, value_text
from batchrunner.plan.field_order import FieldOrders, choose_field_orders


@dataclass(frozen=True)
class Table:
    """Rows of text. Two values of a column differ in their first letter, and so do two names."""

    names: tuple[str, ...]
    rows: list[tuple[str, ...]]

    def choose(self) -> FieldOrders:
        codes = np.zeros((len(self.rows), len(self.names)), np.int32)
        lengths = []
        for field, name in enumerate(self.names):
            values = list(dict.fromkeys(row[field] for row in self.rows))
            codes[:, field] = [values.index(row[field]) for row in self.rows]
            fragments = [f"{name_text(name)}{value_text({name: value}, name)}, " for value in values]
            lengths.append(np.array([len(fragment) for fragment in fragments], np.int32))
        return choose_field_orders(codes, lengths, np.array([len(name_text(name)) for name in self.names], np.int32))

    def texts(self, orders: npt.NDArray[np.uint8]) -> list[str]:
        return [
            fields_text(dict(zip(self.names, row, strict=True)), [self.names[field] for field in order])
            for row, order in zip(self.rows, orders.tolist(), strict=True)
        ]

    def texts_as_given(self) -> list[str]:
        return self.texts(np.tile(np.arange(len(self.names), dtype=np.uint8), (len(self.rows), 1)))


def shared(texts: Sequence[str]) -> int:
    """What each text has in common with the one before it, sorted, less the two characters that all of them share.

    Those are the brace, and the quotation mark where two texts part.
    """
    ordered = sorted(texts)
    common = sum(common_length(first, second) for first, second in pairwise(ordered))
    return common - 2 * (len(set(texts)) - 1)


def common_length(first: str, second: str) -> int:
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def table_of(codes: list[list[int]], widths: Sequence[int]) -> Table:
    """The value of code 2 in a column of width 5 is "ccccc"."""
    rows = [tuple(chr(97 + code) * width for code, width in zip(row, widths, strict=True)) for row in codes]
    return Table(tuple(chr(112 + field) * 3 for field in range(len(widths))), rows)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    num_fields = draw(st.integers(1, 5))
    row = st.lists(st.integers(0, 4), min_size=num_fields, max_size=num_fields)
    widths = draw(st.lists(st.integers(1, 20), min_size=num_fields, max_size=num_fields))
    return table_of(draw(st.lists(row, min_size=1, max_size=20)), widths)


@settings(deadline=None)
@given(tables())
def test_every_row_has_every_field_once_and_texts_share_what_was_counted(table: Table) -> None:
    found = table.choose()
    assert found.orders.dtype == np.uint8
    assert np.sort(found.orders, axis=1).tolist() == [list(range(len(table.names)))] * len(table.rows)
    texts = table.texts(found.orders)
    assert found.num_chars == sum(map(len, texts))
    assert found.num_shared == shared(texts)
    assert found.num_shared_as_given == shared(table.texts_as_given())
    assert found.num_shared_as_given <= found.num_shared_in_one_order <= found.num_shared


@settings(deadline=None)
@given(tables())
def test_equal_rows_get_equal_orders_and_the_same_table_the_same_ones(table: Table) -> None:
    orders = table.choose().orders
    seen: dict[tuple[str, ...], list[int]] = {}
    for row, order in zip(table.rows, orders.tolist(), strict=True):
        assert seen.setdefault(row, order) == order
    assert np.array_equal(orders, table.choose().orders)


@settings(deadline=None)
@given(tables(), st.data())
def test_a_row_that_is_there_more_often_weighs_no_more(table: Table, data: st.DataObject) -> None:
    """Equal prompts are computed once."""
    copies = data.draw(st.lists(st.sampled_from(table.rows), max_size=20))
    orders = Table(table.names, table.rows + copies).choose().orders
    assert np.array_equal(orders[: len(table.rows)], table.choose().orders)


def test_the_order_given_stays_where_no_other_is_better() -> None:
    table = table_of([[0, 0, 0], [0, 0, 1], [0, 1, 2], [0, 1, 3]], [5, 5, 5])
    assert table.choose().orders.tolist() == [[0, 1, 2]] * 4
    nothing_shared = table_of([[0, 1, 2], [1, 2, 0], [2, 0, 1]], [5, 9, 7])
    assert nothing_shared.choose().orders.tolist() == [[0, 1, 2]] * 3


def test_a_field_that_saves_most_does_not_come_first_where_that_costs_more_behind_it() -> None:
    found = table_of([[0, 0, 0], [1, 1, 0], [1, 1, 1]], [1, 1, 7]).choose()
    assert found.orders.tolist() == [[0, 1, 2]] * 3
    assert found.num_shared == found.num_shared_in_one_order == found.num_shared_as_given


def test_a_key_goes_behind_what_rows_have_in_common() -> None:
    table = table_of([[key, key % 2, 0] for key in range(8)], [4, 6, 6])
    found = table.choose()
    assert found.orders.tolist() == [[2, 1, 0]] * 8
    assert found.num_shared == found.num_shared_in_one_order > found.num_shared_as_given


def test_rows_with_different_fields_in_common_beat_any_one_order() -> None:
    """Half of the rows share their first field, the other half their second one."""
    table = table_of([[0, 1 + i] for i in range(5)] + [[1 + i, 0] for i in range(5)], [30, 30])
    found = table.choose()
    assert found.orders.tolist() == [[0, 1]] * 5 + [[1, 0]] * 5
    assert found.num_shared > found.num_shared_in_one_order == found.num_shared_as_given


def test_groups_are_ordered_among_themselves() -> None:
    """All rows of a half share the first field; of each half, one quarter shares the second and one the third."""
    quarters = [[half, *pair] for half in (0, 1) for pair in ([0, 1], [0, 2], [0, 3], [1, 0], [2, 0], [3, 0])]
    found = table_of(quarters, [40, 20, 20]).choose()
    assert found.orders.tolist() == [[0, 1, 2], [0, 1, 2], [0, 1, 2], [0, 2, 1], [0, 2, 1], [0, 2, 1]] * 2
    assert found.num_shared > found.num_shared_in_one_order


def test_fields_that_a_value_determines_count_for_it_and_come_along() -> None:
    """Alone the last field saves more than the first, but the first one brings the second with it."""
    codes = [[0, 0, 0], [0, 0, 1], [0, 0, 2], [1, 1, 0], [1, 1, 1], [1, 1, 2], [2, 2, 0], [3, 3, 0]]
    found = table_of(codes, [16, 16, 18]).choose()
    assert found.orders[:6].tolist() == [[0, 1, 2]] * 6


def test_long_values_count_more_than_frequent_ones() -> None:
    table = table_of([[0, 0], [0, 0], [0, 1], [0, 1], [1, 0], [1, 1]], [2, 19])
    assert table.choose().orders.tolist() == [[1, 0]] * 6


def test_a_row_that_cannot_be_asked_keeps_the_order_given_and_counts_for_nothing() -> None:
    codes = np.array([[0, 0], [1, 1], [2, 0], [3, 2]], np.int32)
    lengths = (np.array([9, 0, 9, 9], np.int32), np.array([9, 0, 9], np.int32))
    found = choose_field_orders(codes, lengths, np.array([5, 5], np.int32))
    assert found.orders.tolist() == [[1, 0], [0, 1], [1, 0], [1, 0]]
    assert found.num_chars == 54
    assert found.num_shared == 9 + 5 + 5
    assert found.num_shared_as_given == 5 + 5


def test_a_table_without_rows_has_no_orders() -> None:
    empty = np.zeros(0, np.int32)
    found = choose_field_orders(np.zeros((0, 2), np.int32), (empty, empty), np.array([5, 5], np.int32))
    assert found.orders.shape == (0, 2)
    assert found.num_chars == found.num_shared == 0
