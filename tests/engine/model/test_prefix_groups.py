"""Groups of requests with a common beginning: every position attended once, and only where it pays."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrunner.engine.model.prefix_groups import GroupRule, group_by_prefix
from batchrunner.kernels.attention_work import AttentionWork, PrefixGroup, Segment

ALWAYS = GroupRule(min_members=2, min_tokens=1)


@st.composite
def steps(draw: st.DrawFn) -> tuple[list[Segment], int]:
    """Requests in a tree of blocks: each begins as an earlier one does and goes on alone. Some are prompt chunks."""
    block_size = draw(st.integers(1, 5))
    next_block = 0
    segments: list[Segment] = []
    row = 0
    for _ in range(draw(st.integers(0, 12))):
        table: list[int] = []
        if segments:
            parent = draw(st.sampled_from(segments))
            num_full = (parent.context_len - 1) // block_size
            table = list(parent.block_table[: draw(st.integers(0, num_full))])
        num_own = draw(st.integers(1, 4 * block_size))
        context_len = len(table) * block_size + num_own
        num_new = draw(st.sampled_from([1, 1, 1, num_own]))
        num_blocks = -(-context_len // block_size) - len(table)
        table += range(next_block, next_block + num_blocks)
        next_block += num_blocks
        segments.append(Segment(row, num_new, context_len, table))
        row += num_new
    return segments, block_size


@settings(max_examples=200, deadline=None)
@given(steps(), st.integers(2, 4), st.integers(1, 9))
def test_every_position_is_attended_once(step: tuple[list[Segment], int], min_members: int, min_tokens: int) -> None:
    segments, block_size = step
    work = group_by_prefix(segments, block_size, GroupRule(min_members, min_tokens))
    assert [(s.start, s.num_tokens, s.context_len, s.block_table) for s in work.segments] == [
        (s.start, s.num_tokens, s.context_len, s.block_table) for s in segments
    ]
    for segment in work.segments:
        mine = [group for level in work.levels for group in level if segment.start in group.rows]
        attended = 0
        for group in mine:
            assert group.kv_begin == attended and group.kv_end > attended
            first, last = group.kv_begin // block_size, group.kv_end // block_size
            assert list(group.block_table[first:last]) == list(segment.block_table[first:last])
            attended = group.kv_end
        assert segment.kv_begin == attended < segment.context_len
        assert not mine or segment.num_tokens == 1
    for level in work.levels:
        rows = [row for group in level for row in group.rows]
        assert len(rows) == len(set(rows))
        for group in level:
            assert len(group.rows) >= min_members and group.kv_end - group.kv_begin >= min_tokens


def as_sets(work: AttentionWork) -> list[list[tuple[set[int], int, int]]]:
    def as_set(group: PrefixGroup) -> tuple[set[int], int, int]:
        return set(group.rows), group.kv_begin, group.kv_end

    return [[as_set(group) for group in level] for level in work.levels]


def test_instruction_examples_and_document_nest() -> None:
    tables = [[0, 1, 2, 3, 10], [0, 1, 2, 3, 11], [0, 1, 2, 4, 12], [0, 1, 5, 13], [0, 1, 5, 14]]
    segments = [Segment(row, 1, 4 * len(table), table) for row, table in enumerate(tables)]
    work = group_by_prefix(segments, 4, ALWAYS)
    assert as_sets(work) == [
        [({0, 1, 2, 3, 4}, 0, 8)],
        [({0, 1, 2}, 8, 12), ({3, 4}, 8, 12)],
        [({0, 1}, 12, 16)],
    ]


def test_what_does_not_pay_falls_to_the_next_group_or_to_the_request() -> None:
    tables = [[0, 1, 2, 10], [0, 1, 2, 11], [0, 5, 6, 12], [0, 5, 6, 13], [0, 14]]
    segments = [Segment(row, 1, 4 * len(table), table) for row, table in enumerate(tables)]
    work = group_by_prefix(segments, 4, GroupRule(min_members=2, min_tokens=8))
    assert as_sets(work) == [[({0, 1}, 0, 12), ({2, 3}, 0, 12)]]
    assert [segment.kv_begin for segment in work.segments] == [12, 12, 12, 12, 0]


def test_the_block_a_token_is_written_to_is_never_shared() -> None:
    segments = [Segment(0, 1, 4, [7]), Segment(1, 1, 4, [7])]
    assert group_by_prefix(segments, 4, ALWAYS).levels == []


@pytest.mark.parametrize(("members", "tokens", "pays"), [(4, 64, True), (3, 64, False), (4, 63, False)])
def test_the_rule(members: int, tokens: int, pays: bool) -> None:
    assert GroupRule(min_members=4, min_tokens=64).pays(members, tokens) is pays
