"""How often requests leave and enter, and who is known to leave soon.

With schedule_every: N the scheduler's checks (who leaves, who enters, is there memory) are made before every Nth step.
Between two passes the running requests go on; one that ends keeps its seat and its blocks until the next pass.
Predictive release: one that was expected to end before the next pass leaves at once, and the next waiting one takes its
seat.
"""

from collections.abc import Sequence

from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.predictors.predictor import LengthPredictor


class Cadence:
    """every: steps from pass to pass. predictor: of the lengths, for predictive release; None: without it."""

    def __init__(self, every: int, block_size: int, predictor: LengthPredictor | None) -> None:
        self._every = every
        self._block_size = block_size
        self._predictor = predictor
        self._steps_left = 0
        self._lengths: dict[Request, float] = {}  # predicted; asked again once they are outlived
        self._expected: set[Request] = set()  # to end before the next pass
        self._lingering: list[Request] = []  # have ended, and stay until the next pass
        self.has_successors = False
        self.has_passed = False

    def begin_step(self) -> bool:
        """Whether a pass is due before this step."""
        self.has_passed = self._steps_left == 0 and not self._lingering  # they leave with the step before
        self._steps_left = max(0, self._steps_left - 1)
        return self.has_passed

    def passed(self, running: Sequence[Request]) -> None:
        """A pass was made; these run until the next one."""
        self._steps_left = self._every - 1
        self.has_successors = False
        if self._steps_left:
            self._expected = {request for request in running if self._ends_within(request, self._steps_left)}

    def leaving(self, ended: list[Request], running: Sequence[Request]) -> list[Request]:
        """Who leaves now, of those that ended with this step and before."""
        if self._steps_left == 0 or len(self._lingering) + len(ended) == len(running):
            leaving, self._lingering = self._lingering + ended, []
            self._steps_left = 0
            return leaving
        leaving = [request for request in ended if request in self._expected]
        self._lingering += [request for request in ended if request not in self._expected]
        self.has_successors = self.has_successors or bool(leaving)
        return leaving

    def forget(self, request: Request) -> None:
        """It has left, or was cancelled."""
        self._lengths.pop(request, None)

    def num_growing(self, running: Sequence[Request], num_free: int) -> int:
        """How many running requests need one more block before they end; at most as exact as num_free asks for."""
        if len(running) <= num_free or self._predictor is None:
            return len(running)
        return sum(not self._fits_its_blocks(request, self._predictor) for request in running)

    def _ends_within(self, request: Request, num_steps: int) -> bool:
        if self._predictor is None:
            return False
        return self._predict(request, self._predictor) - request.num_output_tokens <= num_steps

    def _fits_its_blocks(self, request: Request, predictor: LengthPredictor) -> bool:
        num_tokens = request.num_prompt_tokens + self._predict(request, predictor) - 1
        return num_tokens <= len(request.block_table) * self._block_size

    def _predict(self, request: Request, predictor: LengthPredictor) -> float:
        length = self._lengths.get(request, 0.0)
        if length <= request.num_output_tokens:
            length = self._lengths[request] = predictor.predict(request)
        return length
