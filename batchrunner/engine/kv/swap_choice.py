"""Whether a block of KV is worth moving, or computing its tokens again is cheaper.

A block that is swapped costs M_KV / B_link twice, down and up again; one that is dropped costs tokens / S_prefill when
it is needed again. Both grow with the number of blocks, so what holds for one block holds for all of a victim's.
"""

from dataclasses import dataclass, field
from typing import Protocol

from batchrunner.engine.kv.places import Place

MAX_OUTLIER = 3.0  # times what was known
SMOOTHING = 0.2  # of a new measurement; the rest is what was known before


class SwapChoice(Protocol):
    def stores(self, place: Place) -> bool:
        """Whether a block that leaves a nearer place, and will be needed again, is moved to this one."""

    def loads(self, place: Place) -> bool:
        """Whether a block that lies there is moved to the device when it is needed."""

    def relative_cost(self, place: Place) -> float:
        """What loading a block costs, of what computing it costs."""


@dataclass(slots=True)
class MeasuredCosts:
    """Seconds a block, and prefill tokens a second; measured at the start and kept current while steps run.

    seconds_down, seconds_up: from the device to a place and back. tokens_per_second: of steps that mostly compute
    prompts, None before the first such step: until then moving is taken to be cheaper. busy_seconds: of all steps so
    far.
    """

    block_size: int
    seconds_down: dict[Place, float] = field(default_factory=dict)
    seconds_up: dict[Place, float] = field(default_factory=dict)
    tokens_per_second: float | None = None
    busy_seconds: float = 0.0

    def observe_step(self, num_tokens: int, num_samples: int, seconds: float) -> None:
        """num_samples: of the step's tokens, those that were followed by a sampled one. seconds: of the forward pass
        alone, without moves."""
        self.busy_seconds += seconds
        if num_tokens < 2 * num_samples or not seconds:
            return  # mostly decodes, which read all weights for few tokens
        measured = num_tokens / seconds
        known = self.tokens_per_second
        self.tokens_per_second = measured if known is None else known + SMOOTHING * (measured - known)

    def observe_moves(self, seconds: dict[Place, float], place: Place, measured: float) -> None:
        """seconds: seconds_down or seconds_up; measured: seconds a block."""
        known = seconds.get(place)
        # One stall must not end all moves: without moves nothing would be measured again.
        measured = measured if known is None else min(measured, MAX_OUTLIER * known)
        seconds[place] = measured if known is None else known + SMOOTHING * (measured - known)

    @property
    def recompute_seconds(self) -> float:
        """Of one block; infinite while the speed is not known."""
        return self.block_size / self.tokens_per_second if self.tokens_per_second else float("inf")

    def relative_cost(self, place: Place) -> float:
        """Of bringing a block back from there, by what computing it takes."""
        return self.seconds_up.get(place, 0.0) / self.recompute_seconds


class CheaperOne:
    """preemption: auto."""

    def __init__(self, costs: MeasuredCosts) -> None:
        self._costs = costs

    def stores(self, place: Place) -> bool:
        costs = self._costs
        return costs.seconds_down.get(place, 0.0) + costs.seconds_up.get(place, 0.0) < costs.recompute_seconds

    def loads(self, place: Place) -> bool:
        return self._costs.seconds_up.get(place, 0.0) < self._costs.recompute_seconds

    def relative_cost(self, place: Place) -> float:
        return self._costs.relative_cost(place)


class AlwaysSwap:
    """preemption: swap."""

    def __init__(self, costs: MeasuredCosts) -> None:
        self._costs = costs

    def stores(self, place: Place) -> bool:
        return True

    def loads(self, place: Place) -> bool:
        return True

    def relative_cost(self, place: Place) -> float:
        return self._costs.relative_cost(place)


class NeverSwap:
    """preemption: recompute. What an earlier run kept is still loaded."""

    def stores(self, place: Place) -> bool:
        return False

    def loads(self, place: Place) -> bool:
        return True

    def relative_cost(self, place: Place) -> float:
        return 0.0
