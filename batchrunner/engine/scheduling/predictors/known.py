"""A request that cannot end early is no riddle."""

from collections.abc import Sequence

from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.predictors.predictor import LengthPredictor


class KnownLengths:
    """Exact where the parameters say how long the answer is (ignore_eos, nothing to stop at); else asks another."""

    def __init__(self, other: LengthPredictor) -> None:
        self._other = other

    def prepare(self, requests: Sequence[Request]) -> None:
        self._other.prepare([request for request in requests if not _is_known(request)])

    def predict(self, request: Request) -> float:
        return max(1.0, request.max_output_tokens) if _is_known(request) else self._other.predict(request)

    def observe(self, request: Request) -> None:
        if not _is_known(request):
            self._other.observe(request)


def _is_known(request: Request) -> bool:
    sampling = request.sampling
    return sampling.ignore_eos and not sampling.stop and not sampling.stop_token_ids
