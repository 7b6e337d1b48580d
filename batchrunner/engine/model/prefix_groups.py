"""Which running requests share the beginning of their block tables, so that it is attended once for all of them.

Cascade attention (Hydragen, arXiv 2402.05099; FlashInfer, arXiv 2501.01005) with nested groups. A cached block stands
for all tokens before it too: two block tables that have the same block at an index are equal up to there. Sorted by
their tables, requests that share a beginning are neighbours, and a group is a range of them.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from batchrunner.kernels.attention_work import AttentionWork, PrefixGroup, Segment


@dataclass(frozen=True, slots=True)
class GroupRule:
    """A group of num_members requests over num_tokens shared ones pays from here on; measured, by device."""

    min_members: int
    min_tokens: int

    def pays(self, num_members: int, num_tokens: int) -> bool:
        return num_members >= self.min_members and num_tokens >= self.min_tokens


NO_GROUPS = GroupRule(min_members=sys.maxsize, min_tokens=sys.maxsize)


def group_by_prefix(segments: Sequence[Segment], block_size: int, rule: GroupRule) -> AttentionWork:
    """Find the groups that pay among the one-token segments; the others attend all of their blocks themselves."""
    decodes = sorted((s for s in segments if s.num_tokens == 1), key=lambda s: list(s.block_table))
    finder = _Finder(decodes, block_size, rule)
    if len(decodes) >= rule.min_members:
        finder.visit(0, len(decodes), 0, 0)
    begins = dict(zip((segment.start for segment in decodes), finder.kv_begins, strict=True))
    grouped = [
        replace(segment, kv_begin=begins[segment.start]) if begins.get(segment.start) else segment
        for segment in segments
    ]
    return AttentionWork(grouped, finder.levels)


class _Finder:
    def __init__(self, decodes: Sequence[Segment], block_size: int, rule: GroupRule) -> None:
        self._decodes = decodes
        self._block_size = block_size
        self._rule = rule
        self._shared = [_num_shared_blocks(a, b, block_size) for a, b in pairwise(decodes)]  # between each and the next
        self.kv_begins = [0] * len(decodes)
        self.levels: list[list[PrefixGroup]] = []

    def visit(self, begin: int, end: int, kv_begin: int, level: int) -> None:
        """Group the range [begin, end), whose members' positions before kv_begin are taken care of."""
        if end - begin < self._rule.min_members:
            return
        kv_end = min(self._shared[begin : end - 1], default=0) * self._block_size
        if self._rule.pays(end - begin, kv_end - kv_begin):
            if level == len(self.levels):
                self.levels.append([])
            rows = [segment.start for segment in self._decodes[begin:end]]
            self.levels[level].append(PrefixGroup(rows, self._decodes[begin].block_table, kv_begin, kv_end))
            self.kv_begins[begin:end] = [kv_end] * (end - begin)
            kv_begin, level = kv_end, level + 1
        depth = kv_end // self._block_size
        first = begin
        for index in range(begin, end):
            if index == end - 1 or self._shared[index] <= depth:
                self.visit(first, index + 1, kv_begin, level)
                first = index + 1


def _num_shared_blocks(a: Segment, b: Segment, block_size: int) -> int:
    """Whole blocks both have in common, of those that lie before the token each computes."""
    low, high = 0, (min(a.context_len, b.context_len) - 1) // block_size
    while low < high:
        middle = (low + high + 1) // 2
        if a.block_table[middle - 1] == b.block_table[middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low
