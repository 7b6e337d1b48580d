"""Shortest job first."""

from collections.abc import Sequence

from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.policies.policy import Rank
from batchrunner.engine.scheduling.predictors.predictor import LengthPredictor

FIRST_REVISION = 16  # requests that have ended; then at every doubling


class ShortestJobFirst:
    """The request with the fewest predicted output tokens runs first.

    With exact lengths the mean waiting is the least there is (Smith, "Various optimizers for single-stage production",
    1956). A long request may wait until the end of the work: offline there is one. A prediction holds until the
    predictor has seen twice as many answers; then all are made anew.
    """

    preempts = False

    def __init__(self, predictor: LengthPredictor) -> None:
        self._predictor = predictor
        self._predicted: dict[Request, float] = {}
        self._num_ended = 0
        self._next_revision = FIRST_REVISION

    def rank(self, request: Request) -> Rank:
        length = self._predicted.get(request)
        if length is None:
            length = self._predicted[request] = self._predictor.predict(request)
        return (length, request.number)

    def displaces(self, waiting: Request, running: Request) -> bool:
        return False

    def lend(self, lender: Request, running: Request) -> bool:
        return False

    def ran(self, generating: Sequence[Request]) -> Sequence[Request]:
        if self._num_ended < self._next_revision:
            return ()
        self._next_revision *= 2
        changed = []
        for request, old in self._predicted.items():
            self._predicted[request] = new = self._predictor.predict(request)
            if new != old:
                changed.append(request)
        return changed

    def ended(self, request: Request) -> None:
        self._predicted.pop(request, None)
        self._num_ended += 1
