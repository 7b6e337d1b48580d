"""How many tokens will a request generate? Shortest-job-first asks, and so does who wants to know what ends soon."""

from collections.abc import Callable, Sequence
from typing import Protocol

from batchrunner.engine.request import Request

TextOf = Callable[[Request], str]  # a request's prompt as text


class LengthPredictor(Protocol):
    """Predictions need to put requests in the right order; no answer depends on them."""

    def prepare(self, requests: Sequence[Request]) -> None:
        """Told of requests before they are asked for, many at once: a model predicts them as a batch."""

    def predict(self, request: Request) -> float:
        """Output tokens in all, those it has already included: 1 … request.max_output_tokens."""

    def observe(self, request: Request) -> None:
        """A request has ended; its length is known."""


def outlived(estimate: float, request: Request) -> float:
    """An estimate, doubled as often as the request has outlived it, within 1 … request.max_output_tokens.

    A request that has reached its estimate and goes on will not end at the next token for that: "one more" would be
    said at every step, would put a runaway first in line and have it count as nearly done. Doubling is wrong log(n)
    times, not n times.
    """
    estimate = max(1.0, estimate)
    while estimate <= request.num_output_tokens:
        estimate *= 2
    return max(1.0, min(estimate, request.max_output_tokens))
