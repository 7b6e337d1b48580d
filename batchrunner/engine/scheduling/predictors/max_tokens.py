"""The length a request may have: exact with ignore_eos, an upper bound without."""

from collections.abc import Sequence

from batchrunner.engine.request import Request


class MaxTokens:
    def prepare(self, requests: Sequence[Request]) -> None:
        pass

    def predict(self, request: Request) -> float:
        return max(1.0, request.max_output_tokens)

    def observe(self, request: Request) -> None:
        pass
