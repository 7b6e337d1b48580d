"""What one step does, as decided by the scheduler; ForwardInput is the same as tensors."""

from dataclasses import dataclass, field

from batchrunner.engine.kv.block_changes import BlockChanges
from batchrunner.engine.request import Request


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
class Schedule(BlockChanges):
    """The tokens that a step computes, and what it does with blocks beside."""

    scheduled: list[ScheduledRequest] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)
    sampling_requests: list[Request] = field(default_factory=list)
    num_tokens: int = 0
    cut: list[CutRequest] = field(default_factory=list)
    num_wasted_tokens: float = 0.0  # computed once more after a preemption, or loaded at so much of the cost

    def add(self, request: Request, num_new_tokens: int) -> ScheduledRequest:
        start = request.num_computed_tokens
        item = ScheduledRequest(request, start, start + num_new_tokens)
        self.scheduled.append(item)
        self.num_tokens += num_new_tokens
        if item.end == len(request.token_ids):
            self.sampling_requests.append(request)
        return item
