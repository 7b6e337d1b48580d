"""What the simulator asks of a cost model, and the simplest one."""

from dataclasses import dataclass
from typing import Protocol

from batchrunner.engine.kv.places import Place
from batchrunner.engine.scheduling.schedule import Schedule
from batchrunner.simulate.cost.least_work import LeastWork
from batchrunner.simulate.cost.roofline import StepCost


class StepCosts(Protocol):
    """The Roofline is one."""

    def step(self, schedule: Schedule, num_read_tokens: int | None = None) -> StepCost:
        """num_read_tokens: KV read, with shared prefixes counted once; None: every request reads its own context."""

    def block_seconds(self, source: Place, target: Place) -> float:
        """What moving one block takes."""

    def least_seconds(self, work: LeastWork) -> float:
        """No schedule does the work in less."""


@dataclass(frozen=True, slots=True)
class FixedSteps:
    """Every step takes the same time, whatever is in it, and moving is free: what examples in textbooks assume."""

    seconds: float

    def step(self, schedule: Schedule, num_read_tokens: int | None = None) -> StepCost:
        return StepCost(compute_seconds=self.seconds, memory_seconds=0.0, transfer_seconds=0.0, overhead_seconds=0.0)

    def block_seconds(self, source: Place, target: Place) -> float:
        return 0.0

    def least_seconds(self, work: LeastWork) -> float:
        return work.num_steps * self.seconds
