"""Subtrees of the prefix tree, and where to cut it into parts."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrunner.plan.prefix_order import PrefixOrder, order_in_memory
from batchrunner.plan.prefix_tree import CUT_SLACK, CutPoints, Subtree, cut_points, subtrees, top_prefixes

Prompt = tuple[int, ...]

prompt_lists = st.lists(st.lists(st.integers(0, 2), max_size=5).map(tuple), max_size=20)


def naive_subtrees(prompts: list[Prompt]) -> set[Subtree]:
    """By comparing each prompt with each."""
    ordered = sorted(prompts)
    prefixes = {prompt[:depth] for prompt in ordered for depth in range(len(prompt) + 1)}
    rows = {prefix: {i for i, prompt in enumerate(ordered) if prompt[: len(prefix)] == prefix} for prefix in prefixes}
    found = set()
    for prefix, own in rows.items():
        is_whole = all(rows[longer] != own for longer in prefixes if len(longer) > len(prefix))
        if prefix and len(own) > 1 and is_whole:
            parents = [
                len(shorter) for shorter in prefixes if prefix[: len(shorter)] == shorter and rows[shorter] > own
            ]
            found.add(Subtree(min(own), max(own) + 1, len(prefix), max(parents, default=0)))
    return found


def test_subtrees_of_an_example() -> None:
    order = order_in_memory([(1, 2), (1, 2, 3), (1, 2, 3), (1, 4), (5,)])
    assert list(subtrees(order)) == [Subtree(1, 3, 3, 2), Subtree(0, 3, 2, 1), Subtree(0, 4, 1, 0)]
    assert [subtree.num_saved for subtree in subtrees(order)] == [1, 2, 3]


@given(prompt_lists)
def test_every_branching_prefix_is_found_once(prompts: list[Prompt]) -> None:
    found = list(subtrees(order_in_memory(prompts)))
    assert set(found) == naive_subtrees(prompts)
    assert len(found) == len(set(found))


@given(prompt_lists)
def test_what_the_subtrees_save_is_what_the_tree_is_smaller(prompts: list[Prompt]) -> None:
    order = order_in_memory(prompts)
    saved = sum(subtree.num_saved for subtree in subtrees(order))
    assert saved + order.num_tree_tokens == order.num_tokens.sum()


@given(prompt_lists)
def test_children_come_before_their_parents(prompts: list[Prompt]) -> None:
    found = list(subtrees(order_in_memory(prompts)))
    for index, subtree in enumerate(found):
        for later in found[index + 1 :]:
            is_disjoint = later.first >= subtree.end or later.end <= subtree.first
            is_around = (
                later.first <= subtree.first and subtree.end <= later.end and later.depth <= subtree.parent_depth
            )
            assert is_disjoint or is_around


@given(prompt_lists, st.integers(0, 5))
def test_top_prefixes_save_most(prompts: list[Prompt], count: int) -> None:
    order = order_in_memory(prompts)
    saved = sorted((subtree.num_saved for subtree in subtrees(order)), reverse=True)
    assert [subtree.num_saved for subtree in top_prefixes(order, count)] == saved[:count]


# --- cuts -----------------------------------------------------------------------------------------------------------


def forest(num_groups: int, group_size: int) -> PrefixOrder:
    """Groups with a prefix of 10 tokens each; in a group pairs share 2 more."""
    return order_in_memory(
        [(group,) * 10 + (row // 2, row // 2, row) for group in range(num_groups) for row in range(group_size)]
    )


def parts_of(order: PrefixOrder, cuts: CutPoints) -> list[PrefixOrder]:
    places = np.arange(len(order))
    bounds = cuts.bounds.tolist()
    return [order.keep((places >= begin) & (places < end)) for begin, end in pairwise(bounds)]


weight_lists = st.lists(st.sampled_from([0.0, 1.0, 1.0, 2.0, 50.0]), min_size=20, max_size=20)


@given(prompt_lists, st.integers(1, 6), weight_lists)
def test_parts_cover_the_order_and_lose_what_they_say(
    prompts: list[Prompt], num_parts: int, given_: list[float]
) -> None:
    order = order_in_memory(prompts)
    weights = np.array(given_[: len(order)])
    cuts = cut_points(order, num_parts, weights)
    parts = parts_of(order, cuts)
    assert len(parts) == num_parts
    assert np.concatenate([part.rows for part in parts]).tolist() == order.rows.tolist()
    assert sum(part.num_tree_tokens for part in parts) == order.num_tree_tokens + cuts.num_lost
    expected = [weights[begin:end].sum() for begin, end in pairwise(cuts.bounds)]
    assert cuts.weights.tolist() == pytest.approx(expected)


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 6))
def test_a_forest_of_equal_groups_is_cut_between_them(num_parts: int, groups_a_part: int, group_size: int) -> None:
    order = forest(num_parts * groups_a_part, group_size)
    cuts = cut_points(order, num_parts, np.ones(len(order)))
    assert cuts.num_lost == 0
    assert cuts.weights.tolist() == [groups_a_part * group_size] * num_parts


def test_a_cut_moves_to_where_less_is_shared_but_not_far() -> None:
    order = forest(10, 6)  # an even cut into 4 is at 15, 30 and 45; groups begin at 12, 18, … and 30
    assert cut_points(order, 4, np.ones(60)).bounds.tolist() == [0, 12, 30, 42, 60]
    order = forest(2, 30)  # no group begins near 15 or 45: 10 tokens are lost rather than 12
    cuts = cut_points(order, 4, np.ones(60))
    assert (cuts.bounds.tolist(), cuts.num_lost) == ([0, 14, 30, 44, 60], 20)


@given(prompt_lists.filter(len), st.integers(1, 6))
def test_parts_of_light_rows_are_even_within_the_slack(prompts: list[Prompt], num_parts: int) -> None:
    order = order_in_memory(prompts * 60)
    part = len(order) / num_parts
    cuts = cut_points(order, num_parts, np.ones(len(order)))
    assert np.abs(cuts.weights - part).max() <= 2 * CUT_SLACK * part


def test_a_heavy_row_has_a_part_of_its_own() -> None:
    order = order_in_memory([(row,) for row in range(5)])
    cuts = cut_points(order, 3, np.array([1.0, 1.0, 60.0, 1.0, 1.0]))
    assert (cuts.bounds.tolist(), cuts.weights.tolist()) == ([0, 2, 3, 5], [2.0, 60.0, 2.0])
