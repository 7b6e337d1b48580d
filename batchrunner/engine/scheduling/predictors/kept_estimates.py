"""Estimates that cost something: made once, kept until the request ends."""

from batchrunner.engine.request import Request

CAPACITY = 2**20  # about 60 MiB


class KeptEstimates:
    """request_id → tokens. At most `capacity` of them: the one kept longest is lost first, and must be made again."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._tokens: dict[str, float] = {}

    def __contains__(self, request: Request) -> bool:
        return request.request_id in self._tokens

    def __getitem__(self, request: Request) -> float:
        return self._tokens[request.request_id]

    def keep(self, request: Request, tokens: float) -> None:
        if request not in self and len(self._tokens) >= self._capacity:
            del self._tokens[next(iter(self._tokens))]
        self._tokens[request.request_id] = tokens

    def forget(self, request: Request) -> None:
        self._tokens.pop(request.request_id, None)
