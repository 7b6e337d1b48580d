"""Priorities: jobs and rows carry a number, the higher one runs first."""

from collections.abc import Sequence

from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.policies.policy import Rank


class HighestPriority:
    """A request of higher priority displaces one of lower priority that runs.

    ageing: how much the priority of a waiting request rises with each later arrival. All rise alike, so that ranks do
    not change with time: priority + ageing · (now − arrival) orders as priority − ageing · arrival does. Above 0 nobody
    starves.

    A running request that computes a prefix a more urgent one waits for is lent its priority until it has computed it
    (priority inheritance: Sha, Rajkumar and Lehoczky, 1990).
    """

    preempts = True

    def __init__(self, ageing: float = 0.0) -> None:
        self._ageing = ageing
        self._loans: dict[Request, float] = {}

    def rank(self, request: Request) -> Rank:
        own = self._urgency(request)
        return (-max(own, self._loans.get(request, own)), request.number)

    def displaces(self, waiting: Request, running: Request) -> bool:
        return self.rank(waiting)[0] <= self.rank(running)[0] - 1  # by a whole step of priority

    def lend(self, lender: Request, running: Request) -> bool:
        urgency = self._urgency(lender)
        if urgency <= -self.rank(running)[0]:
            return False
        self._loans[running] = urgency
        return True

    def ran(self, generating: Sequence[Request]) -> Sequence[Request]:
        if not self._loans:
            return ()
        return [request for request in generating if self._loans.pop(request, None) is not None]

    def ended(self, request: Request) -> None:
        self._loans.pop(request, None)

    def _urgency(self, request: Request) -> float:
        return request.priority - self._ageing * request.number
