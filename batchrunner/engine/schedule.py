"""What one step does, as decided by the scheduler; ForwardInput is the same as tensors."""

from dataclasses import dataclass, field

from batchrunner.engine.prefix_cache import Node
from batchrunner.engine.request import Request


@dataclass(frozen=True, slots=True)
class ScheduledRequest:
    """num_new_tokens tokens of the request, from position start on, are computed in this step."""

    request: Request
    start: int
    num_new_tokens: int

    @property
    def end(self) -> int:
        return self.start + self.num_new_tokens

    @property
    def samples(self) -> bool:
        """Whether this step computes the request's last known token, so that the next one can be sampled."""
        return self.end == self.request.num_tokens


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """Copy-on-write: before anything is written, block source is copied to block target, which request owns."""

    source: int
    target: int
    request: Request


@dataclass(slots=True)
class Schedule:
    scheduled: list[ScheduledRequest] = field(default_factory=list)
    copies: list[BlockCopy] = field(default_factory=list)
    new_nodes: list[Node] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)
    num_tokens: int = 0

    def add(self, request: Request, num_new_tokens: int) -> ScheduledRequest:
        item = ScheduledRequest(request, request.num_computed_tokens, num_new_tokens)
        self.scheduled.append(item)
        self.num_tokens += num_new_tokens
        return item

    @property
    def sampling_requests(self) -> list[Request]:
        return [item.request for item in self.scheduled if item.samples]


@dataclass(slots=True)
class Counters:
    """Totals since the engine started. A token found in the cache counts as cached only the first time its request
    meets it; what a preempted request computes again is recomputed, never cached."""

    num_steps: int = 0
    num_computed_tokens: int = 0
    num_recomputed_tokens: int = 0
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_output_tokens: int = 0
    num_preemptions: int = 0

    @property
    def hit_rate(self) -> float:
        return self.num_cached_tokens / self.num_prompt_tokens if self.num_prompt_tokens else 0.0
