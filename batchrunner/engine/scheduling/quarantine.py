"""When a step fails: find the one request it fails on, so that all others get their answers.

The requests of a failed step are suspects. They are run again in halves, each half alone; a half that fails is halved
again, a half that passes is free. A suspect that fails alone is the culprit and becomes an error. If one suspect after
the other fails alone and nothing passes in between, it is not the rows: the error is raised.
"""

from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.schedule import Schedule
from batchrunner.engine.scheduling.scheduler import Scheduler
from batchrunner.errors import RowError

MAX_CULPRITS_IN_A_ROW = 8


class Quarantine:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._groups: list[list[Request]] = []  # to be tested, the last one next
        self._num_culprits_in_a_row = 0

    def failed(self, schedule: Schedule, error: Exception) -> list[Request]:
        """Take in a failed step; returns the culprit if it is found. Raises error if the rows are not to blame."""
        suspects = [item.request for item in schedule.scheduled]
        self._scheduler.abandon(schedule)
        culprits = []
        if len(suspects) == 1:
            self._num_culprits_in_a_row += 1
            if self._num_culprits_in_a_row >= MAX_CULPRITS_IN_A_ROW:
                raise error
            culprits = suspects
            self._scheduler.cancel(suspects[0])
            suspects[0].finish_reason = "error"
            suspects[0].error = RowError(
                "engine_error", f"the model fails on this row: {type(error).__name__}: {error}"
            )
        else:
            middle = len(suspects) // 2
            self._groups += [suspects[middle:], suspects[:middle]]
        self._test_next()
        return culprits

    def passed(self, schedule: Schedule) -> None:
        """Take in a step that went well."""
        self._num_culprits_in_a_row = 0
        if self._scheduler.queues.only is None:
            return
        tested = {item.request for item in schedule.scheduled}
        untested = [request for request in self._scheduler.queues.only if request not in tested]
        if untested:
            self._groups.append(untested)
        self._scheduler.abandon(Schedule())  # the next group runs alone
        self._test_next()

    def _test_next(self) -> None:
        group: list[Request] = []
        while self._groups and not group:
            group = [request for request in self._groups.pop() if request.finish_reason is None]
        self._scheduler.queues.only = group or None
