"""What the engine needs of whatever computes its steps: ModelRunner, or a fake one."""

from collections.abc import Sequence
from typing import Protocol

from batchrunner.engine.kv.places import Move
from batchrunner.engine.model.step_times import StepTimes
from batchrunner.engine.scheduling.schedule import Schedule


class StepRunner(Protocol):
    @property
    def vocabulary_size(self) -> int: ...
    @property
    def substitutions(self) -> object: ...
    @property
    def step_times(self) -> StepTimes: ...
    def run(self, schedule: Schedule) -> list[int]: ...
    def move(self, moves: Sequence[Move]) -> None: ...
    def close(self) -> None: ...
