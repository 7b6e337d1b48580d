"""What the scheduler asks of a policy."""

from collections.abc import Sequence
from typing import Protocol

from batchrunner.engine.request import Request

Rank = tuple[float, ...]


class Policy(Protocol):
    """Ranks requests: the smallest rank is admitted first, served first, and preempted last.

    Ranks change in ran() and lend() only, which say so.
    """

    preempts: bool  # whether displaces() is ever true

    def rank(self, request: Request) -> Rank: ...

    def displaces(self, waiting: Request, running: Request) -> bool:
        """Whether a running request gives its place to a waiting one of smaller rank."""

    def lend(self, lender: Request, running: Request) -> bool:
        """lender waits for KV that running computes: it may rank as high until it has."""

    def ran(self, generating: Sequence[Request]) -> Sequence[Request]:
        """A step has given each of these a token; returns whose rank has changed, those that wait included."""

    def ended(self, request: Request) -> None:
        """A request has ended, or was cancelled."""


class Unchanging:
    """A policy whose ranks never change, and where nobody gives way to those who wait."""

    preempts = False

    def displaces(self, waiting: Request, running: Request) -> bool:
        return False

    def lend(self, lender: Request, running: Request) -> bool:
        return False

    def ran(self, generating: Sequence[Request]) -> Sequence[Request]:
        return ()

    def ended(self, request: Request) -> None:
        pass
