"""What attention has to do in one step: whose tokens, in which blocks, and which beginnings are shared.

blocks      0 1 2 3 4 5 6 7 8 9
request a   ┌───────────┬─────┐        group 1: a, b, c over blocks 0 to 3
request b   │  group 1  ├──┐  │        group 2: b, c over block 4
request c   └───────────┴──┴──┘        then each request over what is its own
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:  # what is to do is decided without torch
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Segment:
    """The tokens of one request in a step: rows [start, start + num_tokens) of the packed tensors.

    context_len counts the request's tokens up to and including its last one in this step. Positions before kv_begin (a
    multiple of the block size) are attended by the groups the segment is a member of.
    """

    start: int
    num_tokens: int
    context_len: int
    block_table: Sequence[int]
    kv_begin: int = 0


@dataclass(frozen=True, slots=True)
class PrefixGroup:
    """One-token segments whose block tables agree on the positions [kv_begin, kv_end), whole blocks.

    rows: where the members' tokens lie. block_table: that of any member.
    """

    rows: Sequence[int]
    block_table: Sequence[int]
    kv_begin: int
    kv_end: int


@dataclass(frozen=True, slots=True)
class AttentionWork:
    """One step. A row is in at most one group of each level; the levels are attended in order."""

    segments: Sequence[Segment]
    levels: Sequence[Sequence[PrefixGroup]] = field(default=())

    @property
    def num_rows(self) -> int:
        return sum(segment.num_tokens for segment in self.segments)

    @property
    def num_read(self) -> int:
        """Tokens whose KV is read: those of a group once for all its members."""
        num_own = sum([segment.context_len - segment.kv_begin for segment in self.segments])
        return num_own + sum([group.kv_end - group.kv_begin for level in self.levels for group in level])

    def positions(self) -> npt.NDArray[np.int32]:
        """[num_rows]: the position of each row's token in its request."""
        positions = np.empty(self.num_rows, dtype=np.int32)
        for segment in self.segments:
            end = segment.start + segment.num_tokens
            positions[segment.start : end] = np.arange(segment.context_len - segment.num_tokens, segment.context_len)
        return positions


@dataclass(frozen=True, slots=True)
class AttentionOptions:
    """What a model family asks of attention beyond softmax: 0 means off."""

    scale: float
    window: int = 0
    softcap: float = 0.0
    sinks: Tensor | None = None  # [num_heads]: a logit that takes probability and gives no value
    head_scales: Tensor | None = None  # [num_heads]: multiplies scale
