"""The loop: schedule, run, update, and a clock that the cost model moves."""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

from batchrunner.engine.kv.swap_choice import MeasuredCosts
from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.schedule import Schedule
from batchrunner.engine.scheduling.scheduler import Scheduler
from batchrunner.errors import RowError
from batchrunner.simulate.cost.step_costs import StepCosts
from batchrunner.simulate.load.arrivals import Arrivals
from batchrunner.simulate.load.loads import SimRow
from batchrunner.simulate.report import Tally
from batchrunner.simulate.sim_request import END, SimRequest


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """The loop leaves no cycles behind; to look for them among a million objects takes a quarter of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@dataclass(frozen=True, slots=True)
class Machine:
    """measured: what `preemption: auto` goes by; scheduling_seconds: of every pass; num_blocks: of the pool."""

    costs: StepCosts
    measured: MeasuredCosts
    scheduling_seconds: float
    num_blocks: int


class SimRun:
    """One load through one scheduler, whose pool may be smaller than the machine's where the load cannot fill that."""

    def __init__(
        self,
        rows: Sequence[SimRow],
        arrivals: Arrivals,
        scheduler: Scheduler,
        machine: Machine,
        max_position: int,
    ) -> None:
        self.scheduler = scheduler
        self.tally = Tally()
        self.seconds = 0.0
        self._rows = rows
        self._arrivals = arrivals
        self._machine = machine
        self._max_position = max_position

    def run(self) -> None:
        """Until every row has been answered or refused."""
        with _no_garbage_collection():
            while self._feed():
                schedule = self.scheduler.schedule()
                self._charge(schedule)
                left = self.scheduler.update(schedule, self._sample(schedule))
                self._note(schedule, left)

    def _feed(self) -> bool:
        """Queue the rows that have come, after waiting for one if there is nothing to do; False at the end."""
        while True:
            came = [SimRequest.of(row, self._rows[row], self._max_position) for row in self._arrivals.due(self.seconds)]
            self.scheduler.predictor.prepare(came)
            for request in came:
                self._add(request)
            if self.scheduler.has_unfinished:
                return True
            next_seconds = self._arrivals.next_seconds
            if next_seconds is None:
                return False
            self.seconds = max(self.seconds, next_seconds)

    def _add(self, request: SimRequest) -> None:
        try:
            self.scheduler.add(request)
        except RowError as error:
            self.tally.refused[error.error_type] += 1
            self._arrivals.answered(request.row, self.seconds)  # it is an error row; what follows it may be asked

    def _charge(self, schedule: Schedule) -> None:
        """What the scheduler and the machine take for this step. Between two passes there may be nothing to do."""
        tally, machine = self.tally, self._machine
        if self.scheduler.cadence.has_passed:
            assert schedule.scheduled, "a pass with work to do computes something"
            tally.num_passes += 1
            tally.scheduling_seconds += machine.scheduling_seconds
            self.seconds += machine.scheduling_seconds
        if not schedule.scheduled:
            return
        num_held = self._num_held_blocks()
        tally.most_held_blocks = max(tally.most_held_blocks, num_held)
        cost = machine.costs.step(schedule, num_held * self.scheduler.pool.block_size)
        num_samples = len(schedule.sampling_requests)
        machine.measured.observe_step(schedule.num_tokens, num_samples, cost.seconds - cost.transfer_seconds)
        self.seconds += cost.seconds
        tally.transfer_seconds += cost.transfer_seconds
        tally.num_steps += 1

    def _num_held_blocks(self) -> int:
        """By running requests, shared ones counted once."""
        return self.scheduler.pool.num_blocks - self.scheduler.tables.num_available

    def _sample(self, schedule: Schedule) -> list[int]:
        sampling = cast(list[SimRequest], schedule.sampling_requests)
        for request in [request for request in sampling if len(request.token_ids) == request.num_prompt_tokens]:
            self.tally.first_seconds[request.row] = self.seconds
        return [
            END if (known := len(request.token_ids)) == request.ends_after else known + request.token_offset
            for request in sampling
        ]

    def _note(self, schedule: Schedule, left: Sequence[Request]) -> None:
        tally, scheduler = self.tally, self.scheduler
        for request in cast(Sequence[SimRequest], left):
            tally.end_seconds[request.row] = self.seconds
            self._arrivals.answered(request.row, self.seconds)
        if not schedule.scheduled:
            return
        tally.most_running = max(tally.most_running, len(schedule.scheduled))
        if tally.series.is_due():
            kv_use = self._num_held_blocks() / self._machine.num_blocks
            tally.series.add(self.seconds, len(schedule.scheduled), kv_use, scheduler.counters.hit_rate)
