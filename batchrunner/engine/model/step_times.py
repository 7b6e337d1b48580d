"""How long the last steps took, and what was in them: what a forecast goes by."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from batchrunner.engine.scheduling.schedule import Schedule
from batchrunner.engine.scheduling.step_work import StepWork

NUM_STEPS = 512
MUCH_LARGER = 1.25


@dataclass(frozen=True, slots=True)
class StepTime:
    """num_read: tokens whose KV was read, those of a prefix group once. seconds: of the forward pass, without moves."""

    work: StepWork
    num_read: int
    seconds: float


class StepTimes:
    """The last NUM_STEPS steps, oldest first.

    A step much larger than all before it is left out, as the first one is: it touches memory for the first time.
    """

    def __init__(self) -> None:
        self._steps: deque[StepTime] = deque(maxlen=NUM_STEPS)
        self._most_tokens = 0

    def __len__(self) -> int:
        return len(self._steps)

    def __iter__(self) -> Iterator[StepTime]:
        return iter(self._steps)

    def observe(self, schedule: Schedule, num_read: int, seconds: float) -> None:
        most = self._most_tokens
        self._most_tokens = max(most, schedule.num_tokens)
        if schedule.num_tokens <= MUCH_LARGER * most:
            self._steps.append(StepTime(StepWork.of(schedule), num_read, seconds))
