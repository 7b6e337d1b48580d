"""The requests of all jobs on their way into the engine, a few hundred ahead of those running."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import chain, islice

from batchrunner.data.spool.spool import SpooledRequest
from batchrunner.engine.engine import EngineCore
from batchrunner.engine.request import Completion, Request
from batchrunner.errors import RowError
from batchrunner.run.job_run import JobRun, failed_completion
from batchrunner.spec.engine import SmallModel

# Requests waiting in the engine beyond those running: enough to fill a step, few enough to keep memory flat.
MIN_WAITING = 512
MAX_WAITING = 2 * MIN_WAITING
MAX_PREDICTED = 64  # by a small model, between two steps: nothing else happens meanwhile


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What a running request has brought so far."""

    job: JobRun
    request_id: bytes
    output_token_ids: list[int]


@dataclass(frozen=True, slots=True)
class Asked:
    job: JobRun
    spooled: SpooledRequest
    num_shared_later: int


class Feed:
    """owners: the job of each request that is in the engine.

    refuse is told the job, the request id and the error of a request that the engine does not take.
    """

    def __init__(
        self, engine: EngineCore, jobs: list[JobRun], refuse: Callable[[JobRun, bytes, Completion], None]
    ) -> None:
        self.owners: dict[Request, JobRun] = {}
        self._engine = engine
        self._refuse = refuse
        self._queue = _in_order(jobs, engine.config.policy)

    def fill(self) -> None:
        """Add the next ones if few are waiting."""
        if self._engine.num_waiting >= MIN_WAITING:
            return
        num_wanted = MAX_WAITING - self._engine.num_waiting
        if isinstance(self._engine.config.lengths, SmallModel):
            num_wanted = min(num_wanted, MAX_PREDICTED)
        wanted = islice(self._queue, num_wanted)
        made = [(asked, request) for asked in wanted if (request := self._request(asked)) is not None]
        self._engine.prepare([request for _, request in made])
        for asked, request in made:
            try:
                self._engine.add(request)
                self.owners[request] = asked.job
            except RowError as error:
                self._refuse_row(asked, error)

    def unfinished(self) -> list[Unfinished]:
        """The tokens so far of requests that have some. One that has ended and not left yet is asked its last again."""
        found = []
        for request, job in self.owners.items():
            token_ids = request.output_token_ids
            if request.finish_reason is not None:
                token_ids = token_ids[:-1]
            if token_ids:
                found.append(Unfinished(job, bytes.fromhex(request.request_id), token_ids))
        return found

    def _request(self, asked: Asked) -> Request | None:
        spooled = asked.spooled
        saved = asked.job.saved_tokens(spooled.request_id)
        try:
            return self._engine.request(
                spooled.request_id.hex(),
                spooled.token_ids,
                spooled.sampling,
                saved,
                spooled.priority,
                asked.job.group,
                asked.num_shared_later,
            )
        except RowError as error:
            self._refuse_row(asked, error)
            return None

    def _refuse_row(self, asked: Asked, error: RowError) -> None:
        failed = failed_completion(error, len(asked.spooled.token_ids))
        self._refuse(asked.job, asked.spooled.request_id, failed)


def _asked(job: JobRun) -> Iterator[Asked]:
    """In the order in which they stand in job.ahead, which may be another one on the way."""
    while len(job.ahead):
        ahead = job.ahead.next()
        yield Asked(job, job.spool.request(ahead.row), ahead.num_shared_later)


def _in_order(jobs: list[JobRun], policy: str) -> Iterator[Asked]:
    """One job after the other; with priorities, the most urgent rows of all jobs first."""
    queues = map(_asked, jobs)
    if policy == "priority":
        return merge(*queues, key=lambda asked: -asked.spooled.priority)
    return chain.from_iterable(queues)
