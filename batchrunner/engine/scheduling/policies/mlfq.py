"""A multi-level feedback queue: short answers end early though nobody knows which they are."""

from collections.abc import Sequence
from dataclasses import dataclass

from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.policies.policy import Rank


@dataclass(slots=True)
class Standing:
    """A request's level, 0 the most urgent; its turn within the level; the output tokens at which its slice ends."""

    level: int
    turn: int
    slice_end: int


class FeedbackQueue:
    """Every request starts on level 0. One that has used up its slice of generated tokens goes one level down, behind
    those who are there; a higher level displaces a lower one. Slices double from level to level.

    Every boost_every generated tokens of all requests together everyone is back on level 0, so that nobody starves
    (Corbató and others, 1962; as in Arpaci-Dusseau, "Operating Systems: Three Easy Pieces", chapter 8).
    """

    preempts = True

    def __init__(self, num_levels: int = 4, first_slice: int = 32, boost_every: int = 200_000) -> None:
        self._num_levels = num_levels
        self._first_slice = first_slice
        self._boost_every = boost_every
        self._demoted: dict[Request, Standing] = {}  # all others stand on level 0, in their order of arrival
        self._turn = 0
        self._num_tokens = 0

    def level(self, request: Request) -> int:
        standing = self._demoted.get(request)
        return standing.level if standing else 0

    def rank(self, request: Request) -> Rank:
        standing = self._demoted.get(request)
        return (standing.level, standing.turn) if standing else (0, request.number)

    def displaces(self, waiting: Request, running: Request) -> bool:
        return self.level(waiting) < self.level(running)

    def lend(self, lender: Request, running: Request) -> bool:
        return False

    def ran(self, generating: Sequence[Request]) -> Sequence[Request]:
        self._num_tokens += len(generating)
        if self._num_tokens >= self._boost_every:
            self._num_tokens = 0
            boosted = list(self._demoted)
            self._demoted.clear()
            for request in boosted:  # a new slice from here on
                self._demoted[request] = Standing(0, request.number, request.num_output_tokens + self._first_slice)
            return boosted
        return [request for request in generating if self._has_used_its_slice(request)]

    def ended(self, request: Request) -> None:
        self._demoted.pop(request, None)

    def _has_used_its_slice(self, request: Request) -> bool:
        standing = self._demoted.get(request)
        used = request.num_output_tokens
        if used < (standing.slice_end if standing else self._first_slice):
            return False
        level = min((standing.level if standing else 0) + 1, self._num_levels - 1)
        self._turn += 1
        self._demoted[request] = Standing(level, self._turn, used + (self._first_slice << level))
        return True
