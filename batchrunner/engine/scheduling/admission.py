"""Waiting requests enter while seats, tokens of the step, and blocks last."""

from batchrunner.engine.counters import Counters
from batchrunner.engine.kv.block_tables import BlockTables
from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.batching import Batching
from batchrunner.engine.scheduling.cadence import Cadence
from batchrunner.engine.scheduling.congestion import Congestion
from batchrunner.engine.scheduling.queues import Queues, is_limited
from batchrunner.engine.scheduling.schedule import Schedule
from batchrunner.engine.scheduling.step_builder import StepBuilder


class Admission:
    def __init__(
        self,
        queues: Queues,
        tables: BlockTables,
        builder: StepBuilder,
        batching: Batching,
        cadence: Cadence,
        congestion: Congestion,
        counters: Counters,
    ) -> None:
        self._queues = queues
        self._tables = tables
        self._builder = builder
        self._batching = batching
        self._cadence = cadence
        self._congestion = congestion
        self._counters = counters

    @property
    def is_open(self) -> bool:
        """Whether anybody may enter now."""
        return self._batching.may_admit(len(self._queues.running))

    def admit(self, schedule: Schedule) -> None:
        """In the order of their ranks; the first that does not fit keeps out those behind it: nobody starves."""
        if not self.is_open:
            return
        queues = self._queues
        is_full = False
        while not is_full and len(queues.running) < self._congestion.seats:
            request = queues.first_waiting()
            if request is None:
                break
            is_full = not self._admit_one(request, schedule)
            if request in queues.waiting:
                break
        self._batching.admitted(is_full=is_full)

    def _admit_one(self, request: Request, schedule: Schedule) -> bool:
        """Admit the request if it fits; False if the step has no tokens left for it, or what it shares with others."""
        if any(cut.is_shared_by(request) for cut in schedule.cut):
            return False
        queues, tables, builder = self._queues, self._tables, self._builder
        available = queues.num_available(request)
        match = tables.match(request, available)
        if not builder.num_new_tokens(request, match.num_tokens(tables.pool.block_size), schedule):
            return False
        # All that is known of the request must fit, and leave every running one that will grow a block to grow into.
        num_tokens = request.max_kv_tokens if is_limited(request) else request.num_tokens
        needed = tables.num_needed(request, match, num_tokens)
        if needed + self._cadence.num_growing(queues.running, available - needed) > available:
            return True
        queues.enter(request)
        self._counters.num_prompt_tokens += request.num_prompt_tokens if request.high_water == 0 else 0
        builder.take(request, match, schedule)
        builder.add(request, builder.num_new_tokens(request, request.num_computed_tokens, schedule), schedule)
        return True
