"""Requests of one template have answers of like lengths: predict from those that have ended."""

from collections.abc import Iterable, Mapping, Sequence

from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.predictors.predictor import outlived
from batchrunner.engine.scheduling.predictors.recent_lengths import RecentLengths

MIN_OBSERVATIONS = 8  # fewer say little: the next coarser class is asked
WINDOW = 512  # lengths kept of a class; older ones are forgotten


class History:
    """A quantile of the lengths of finished requests of the same class, learnt while they run.

    The classes of a request, the finest first; the finest with MIN_OBSERVATIONS lengths decides, and where none has
    as many, max_output_tokens is predicted:

        64:reviews    requests of group "reviews" with 64 … 127 prompt tokens
        *:reviews     requests of group "reviews"
        *             all requests

    Of a request that has tokens already, only lengths beyond those are asked: it is known not to be shorter.

    Right-censoring: a request that ended at max_tokens would have gone on; it is counted at the length it had. That is
    what it cost here, and too little for a run with a greater max_tokens. Requests that ended in an error are not
    counted. Memory: `window` lengths a class, at most 32 classes a group; groups are as many as the jobs.

    lengths: what lengths() said in an earlier run; it is learnt on from there.
    """

    def __init__(
        self, quantile: float = 0.5, lengths: Mapping[str, Iterable[int]] | None = None, window: int = WINDOW
    ) -> None:
        assert 0 <= quantile <= 1, f"a quantile is a share from 0 to 1, not {quantile}"
        assert window >= MIN_OBSERVATIONS, "with a smaller window no class would ever have enough"
        self._window = window
        self._quantile = quantile
        self._classes: dict[str, RecentLengths] = {}
        for name, known in (lengths or {}).items():
            for length in known:
                self._add(name, length)

    def prepare(self, requests: Sequence[Request]) -> None:
        pass

    def predict(self, request: Request) -> float:
        for name in _classes_of(request):
            known = self._classes.get(name)
            if known is not None and len(known) >= MIN_OBSERVATIONS:
                return outlived(known.quantile(self._quantile, beyond=request.num_output_tokens), request)
        return max(1.0, request.max_output_tokens)

    def observe(self, request: Request) -> None:
        if request.finish_reason in ("stop", "length"):
            for name in _classes_of(request):
                self._add(name, request.num_output_tokens)

    def lengths(self) -> dict[str, list[int]]:
        """Class → its last lengths, the oldest first. JSON can hold it, and History(lengths=…) takes it."""
        return {name: known.in_order_of_time() for name, known in self._classes.items()}

    def _add(self, name: str, length: int) -> None:
        self._classes.setdefault(name, RecentLengths(self._window)).add(length)


def _classes_of(request: Request) -> tuple[str, str, str]:
    power_of_two = 1 << request.num_prompt_tokens.bit_length() >> 1  # the greatest that is not above it
    return f"{power_of_two}:{request.group}", f"*:{request.group}", "*"
