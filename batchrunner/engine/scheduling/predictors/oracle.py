"""The lengths themselves: what a predictor can gain at most. For simulations and tests."""

from collections.abc import Mapping, Sequence

from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.predictors.predictor import outlived


class Oracle:
    """lengths: request_id → output tokens. Asked for any other request it raises KeyError."""

    def __init__(self, lengths: Mapping[str, int]) -> None:
        self._lengths = lengths

    def prepare(self, requests: Sequence[Request]) -> None:
        pass

    def predict(self, request: Request) -> float:
        return outlived(self._lengths[request.request_id], request)

    def observe(self, request: Request) -> None:
        pass
