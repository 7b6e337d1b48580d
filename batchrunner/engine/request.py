"""The engine's nouns: Request, what it is asked; Completion, what it answers."""

from dataclasses import dataclass, field
from typing import Literal, Protocol

from batchrunner.errors import RowError
from batchrunner.spec.sampling import SamplingParams

FinishReason = Literal["stop", "length", "error"]


class StopMatcher(Protocol):
    """Watches the text of one request for its stop strings."""

    def feed(self, token_id: int) -> bool:
        """Take the next token; True when a stop string is now complete."""


@dataclass(eq=False, slots=True)
class Request:
    """One generation.

    There is no prefill or decode phase: num_computed_tokens (those whose KV is in the cache) catches up with token_ids
    (prompt, then output). A request whose last token alone is missing samples its next one in the same step.
    """

    request_id: str
    token_ids: list[int]
    num_prompt_tokens: int
    sampling: SamplingParams
    eos_token_ids: frozenset[int] = frozenset()
    max_total_tokens: int = 2**31
    stop_matcher: StopMatcher | None = None
    priority: int = 0  # higher is more urgent
    group: str = ""  # requests of one template: their lengths are alike
    num_shared_later: int = 0  # of its first tokens; requests that are not here yet will ask for them
    finish_reason: FinishReason | None = None
    error: RowError | None = None

    # Kept by the scheduler.
    number: int = 0  # order of arrival
    num_computed_tokens: int = 0
    block_table: list[int] = field(default_factory=list)
    block_keys: list[bytes] = field(default_factory=list)  # see chain.py
    num_registered_blocks: int = 0
    num_counted_blocks: int = 0  # whose use by this request is counted
    high_water: int = 0  # most tokens ever computed or found; below it, computing again is waste and a hit is no gain
    settled_until: int = 0  # while fewer tokens are computed, a step computes one more and needs nothing for it
    num_cached_tokens: int = 0
    num_preemptions: int = 0

    # Derived once: append() is called for every token.
    _end_token_ids: frozenset[int] = field(init=False)
    _max_tokens: int = field(init=False)

    def __post_init__(self) -> None:
        eos = frozenset() if self.sampling.ignore_eos else self.eos_token_ids
        self._end_token_ids = eos.union(self.sampling.stop_token_ids)
        self._max_tokens = min(self.num_prompt_tokens + self.sampling.max_tokens, self.max_total_tokens)

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def max_output_tokens(self) -> int:
        """Most tokens it can generate, by its parameters and by the model's context."""
        return self._max_tokens - self.num_prompt_tokens

    @property
    def num_remaining_tokens(self) -> int:
        """Tokens still to compute before the next one can be sampled."""
        return len(self.token_ids) - self.num_computed_tokens

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids[self.num_prompt_tokens :]

    @property
    def max_kv_tokens(self) -> int:
        """The most KV this request can need, in tokens: the last token's KV is never read."""
        return self._max_tokens - 1

    def append(self, token_id: int) -> None:
        """Add a sampled token and decide whether the request ends with it."""
        self.token_ids.append(token_id)
        if token_id in self._end_token_ids or (self.stop_matcher is not None and self.stop_matcher.feed(token_id)):
            self.finish_reason = "stop"
        elif len(self.token_ids) >= self._max_tokens:
            self.finish_reason = "length"


@dataclass(frozen=True, slots=True)
class Completion:
    """The answer to one request. Where error is set there is no text and finish_reason is "error"."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    num_prompt_tokens: int
    num_cached_tokens: int
    num_preemptions: int = 0
    logprobs: tuple[float, ...] | None = None
    error: RowError | None = None
