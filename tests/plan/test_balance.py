"""The order in which rows run: both kinds of work side by side, long answers not last, little sharing lost by it."""

from itertools import pairwise

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrunner.plan.balance import MAX_LOSS, RowCosts, balance
from batchrunner.plan.known_whole import num_known_whole
from batchrunner.plan.prefix_order import PrefixOrder, order_in_memory
from batchrunner.plan.shared_later import num_shared_later

prompts = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=8), min_size=1, max_size=30)


def costs(compute: npt.ArrayLike, memory: npt.ArrayLike, output: npt.ArrayLike) -> RowCosts:
    values = [np.asarray(part, dtype=np.float64) for part in (compute, memory, output)]
    return RowCosts(*values)


def alike(order: PrefixOrder) -> RowCosts:
    return costs(order.num_tokens, np.ones(len(order)), np.full(len(order), 8))


def forest(num_groups: int, num_rows: int, num_shared: int, num_own: int) -> PrefixOrder:
    shared = [[group] * num_shared for group in range(num_groups)]
    return order_in_memory([[*shared[i % num_groups], *[1000 + i] * num_own] for i in range(num_groups * num_rows)])


def num_common(left: list[int], right: list[int]) -> int:
    return next(
        (place for place, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right))
    )


def num_computed(prompts: list[list[int]], order: list[int]) -> int:
    """Naive: by all prompts before."""
    known: set[tuple[int, ...]] = set()
    total = 0
    for row in order:
        beginnings = [tuple(prompts[row][:end]) for end in range(1, len(prompts[row]) + 1)]
        total += max(1, sum(beginning not in known for beginning in beginnings))
        known.update(beginnings)
    return total


@settings(max_examples=300, deadline=None)
@given(prompts=prompts, data=st.data())
def test_whatever_the_order_what_is_computed_is_the_tree_and_what_is_known_whole(
    prompts: list[list[int]], data: st.DataObject
) -> None:
    order = order_in_memory(prompts)
    positions = np.array(data.draw(st.permutations(range(len(prompts)))))
    found = order.num_tree_tokens + num_known_whole(order, positions)
    assert found == num_computed(prompts, order.rows[positions].tolist())
    assert order.num_to_compute == order.num_tree_tokens + num_known_whole(order, np.arange(len(order)))


@settings(max_examples=300, deadline=None)
@given(prompts=prompts, data=st.data(), num_running=st.integers(1, 40))
def test_every_row_runs_once_and_the_loss_is_bounded(
    prompts: list[list[int]], data: st.DataObject, num_running: int
) -> None:
    order = order_in_memory(prompts)
    values = st.lists(st.floats(0.01, 100), min_size=len(order), max_size=len(order))
    found = balance(order, costs(data.draw(values), data.draw(values), data.draw(values)), num_running)
    assert sorted(found.positions.tolist()) == list(range(len(order)))
    assert 0 <= found.num_lost <= MAX_LOSS * order.num_to_compute


def test_rows_alike_keep_the_order_of_their_prefixes() -> None:
    order = forest(num_groups=4, num_rows=5, num_shared=10, num_own=3)
    assert balance(order, alike(order), num_running=4).positions.tolist() == list(range(20))


def test_rows_that_compute_and_rows_that_read_run_side_by_side() -> None:
    order = order_in_memory([[i] for i in range(100)])
    is_compute = np.arange(100) < 50
    found = balance(order, costs(np.where(is_compute, 9, 1), np.where(is_compute, 1, 9), [8] * 100), num_running=8)
    kinds = is_compute[found.positions].astype(int)
    assert all(3 <= kinds[begin : begin + 10].sum() <= 7 for begin in range(0, 100, 10))


def test_what_does_not_overlap_is_not_mixed() -> None:
    order = order_in_memory([[i] for i in range(20)])
    found = balance(order, costs(np.arange(1, 21), np.zeros(20), [8] * 20), num_running=4)
    assert found.positions.tolist() == list(range(20))


def test_groups_stay_whole_where_a_cut_costs_much() -> None:
    order = forest(num_groups=6, num_rows=20, num_shared=50, num_own=2)
    computes = np.repeat([9, 1, 9, 1, 9, 1], 20)
    found = balance(order, costs(computes, 10 - computes, [8] * 120), num_running=4)
    groups = np.arange(120)[found.positions] // 20
    streams = [groups[np.isin(groups, kind)].tolist() for kind in ([0, 2, 4], [1, 3, 5])]
    assert all(sum(a != b for a, b in pairwise(stream)) == 2 for stream in streams)
    assert sum(a != b for a, b in pairwise(groups.tolist())) > 20  # a row of the one kind, a row of the other


def test_a_long_answer_does_not_start_last() -> None:
    order = order_in_memory([[i] for i in range(100)])
    lengths = np.full(100, 10)
    lengths[97] = 200
    found = balance(order, costs(lengths, np.zeros(100), lengths), num_running=10)
    assert found.positions.tolist().index(97) <= 1
    assert [position for position in found.positions.tolist() if position != 97] == [*range(97), 98, 99]


def test_a_long_answer_stays_where_moving_it_would_cost_its_groups_prefix() -> None:
    order = forest(num_groups=4, num_rows=10, num_shared=500, num_own=1)
    lengths = np.full(40, 10)
    lengths[35] = 100
    found = balance(order, costs(lengths, np.zeros(40), lengths), num_running=4)
    assert found.positions.tolist() == list(range(40))


@settings(max_examples=200, deadline=None)
@given(prompts=prompts, data=st.data())
def test_what_is_shared_with_later_rows(prompts: list[list[int]], data: st.DataObject) -> None:
    order = order_in_memory(prompts)
    positions = np.array(data.draw(st.permutations(range(len(prompts)))))
    rows = order.rows[positions].tolist()
    for place, found in enumerate(num_shared_later(order, positions).tolist()):
        later = [num_common(prompts[rows[place]], prompts[row]) for row in rows[place + 1 :]]
        assert found == max(later, default=0)
