"""First come, first served."""

from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.policies.policy import Rank, Unchanging


class FirstComeFirstServed(Unchanging):
    """In the order of arrival: nobody starves, and blocks are known to be needed again in that order."""

    def rank(self, request: Request) -> Rank:
        return (request.number,)
