"""A small model answers first, and the length of its answer is the prediction for the large one's."""

from collections.abc import Callable, Sequence

from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.predictors.kept_estimates import CAPACITY, KeptEstimates
from batchrunner.engine.scheduling.predictors.predictor import outlived

AnswerLengths = Callable[[Sequence[Request]], Sequence[int]]


class SmallModel:
    """answer_lengths: requests → the output tokens of each, in their order. Only it knows a model.

    It is dear, and a batch is cheaper than the same requests one by one: call prepare() with as many as there are.
    """

    def __init__(self, answer_lengths: AnswerLengths, capacity: int = CAPACITY) -> None:
        self._answer_lengths = answer_lengths
        self._predictions = KeptEstimates(capacity)

    def prepare(self, requests: Sequence[Request]) -> None:
        unknown = {request.request_id: request for request in requests if request not in self._predictions}
        self._ask(list(unknown.values()))

    def predict(self, request: Request) -> float:
        if request not in self._predictions:
            self._ask([request])
        return outlived(self._predictions[request], request)

    def observe(self, request: Request) -> None:
        self._predictions.forget(request)

    def _ask(self, requests: Sequence[Request]) -> None:
        if requests:
            for request, length in zip(requests, self._answer_lengths(requests), strict=True):
                self._predictions.keep(request, length)
