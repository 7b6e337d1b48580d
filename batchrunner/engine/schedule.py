"""What one step does, as decided by the scheduler; ForwardInput is the same as tensors."""

from dataclasses import dataclass, field
from enum import IntEnum

from batchrunner.engine.prefix_cache import Node
from batchrunner.engine.request import Request


class Place(IntEnum):
    """Where a block of KV can lie, nearest first."""

    DEVICE = 0
    HOST = 1
    DISK = 2


@dataclass(frozen=True, slots=True)
class Move:
    """A block's content is copied from a slot of one place to a slot of another, or from block to block."""

    source: Place
    source_slot: int
    target: Place
    target_slot: int
    key: bytes  # of the block's content, see chain.py
    parent_key: bytes
    num_uses: int = 0


@dataclass(frozen=True, slots=True)
class InnerCopy:
    """The first num_tokens tokens of a block that this very step computes, for the beginning of another block.

    Done in every layer, after the step's KV is written and before any is read.
    """

    source_block: int
    target_block: int
    num_tokens: int


@dataclass(slots=True)
class ScheduledRequest:
    """The tokens of the request from position start up to position end are computed in this step."""

    request: Request
    start: int
    end: int

    @property
    def num_new_tokens(self) -> int:
        return self.end - self.start

    @property
    def samples(self) -> bool:
        """Whether this step computes the request's last known token, so that the next one can be sampled."""
        return self.end == self.request.num_tokens


@dataclass(frozen=True, slots=True)
class CutRequest:
    """For want of room in the step the request gets no further than end."""

    request: Request
    end: int

    def is_shared_by(self, request: Request) -> bool:
        """Whether request needs tokens that this one will compute in a later step."""
        num_tokens = self.end + 1
        return request.token_ids[:num_tokens] == self.request.token_ids[:num_tokens]


@dataclass(slots=True)
class Schedule:
    """moves are done in their order before anything is written, as if each were done when it was decided; copies in
    theirs after it."""

    scheduled: list[ScheduledRequest] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    copies: list[InnerCopy] = field(default_factory=list)
    new_nodes: list[Node] = field(default_factory=list)  # cached, and right only once this step has gone well
    preempted: list[Request] = field(default_factory=list)
    sampling_requests: list[Request] = field(default_factory=list)
    num_tokens: int = 0
    cut: list[CutRequest] = field(default_factory=list)
    num_wasted_tokens: float = 0.0  # computed once more after a preemption, or loaded at so much of the cost

    def forget_copies_to(self, block_table: list[int]) -> None:
        """Their request goes before it has computed anything: others may write to the blocks in this very step."""
        self.copies = [copy for copy in self.copies if copy.target_block not in block_table]

    def add(self, request: Request, num_new_tokens: int) -> ScheduledRequest:
        start = request.num_computed_tokens
        item = ScheduledRequest(request, start, start + num_new_tokens)
        self.scheduled.append(item)
        self.num_tokens += num_new_tokens
        if item.end == len(request.token_ids):
            self.sampling_requests.append(request)
        return item
