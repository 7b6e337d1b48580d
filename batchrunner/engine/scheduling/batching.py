"""When waiting requests may join the running ones."""

from typing import Protocol


class Batching(Protocol):
    def may_admit(self, num_running: int) -> bool:
        """Asked at the start of a step, before anyone is admitted."""

    def admitted(self, *, is_full: bool) -> None:
        """Told at the end of admission; is_full: it ended for want of tokens in this step, more would have joined."""


class ContinuousBatching:
    """Requests join and leave at every step (iteration-level scheduling, Orca, OSDI 2022)."""

    def may_admit(self, num_running: int) -> bool:
        return True

    def admitted(self, *, is_full: bool) -> None:
        pass


class StaticBatching:
    """A batch is filled once and ends with its longest member. The baseline.

    Filling may take several steps where the prompts exceed the tokens of one; those filled first decode meanwhile.
    """

    def __init__(self) -> None:
        self._is_filling = False

    def may_admit(self, num_running: int) -> bool:
        if num_running == 0:
            self._is_filling = True
        return self._is_filling

    def admitted(self, *, is_full: bool) -> None:
        self._is_filling = is_full
