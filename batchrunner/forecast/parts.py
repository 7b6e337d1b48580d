"""A run that was simulated, or parts of one, and what they say of the whole."""

from dataclasses import dataclass

import numpy as np

from batchrunner.engine.kv.places import Place
from batchrunner.engine.scheduling.schedule import Schedule
from batchrunner.simulate.cost.least_work import LeastWork
from batchrunner.simulate.cost.measured_steps import MeasuredSteps
from batchrunner.simulate.cost.roofline import StepCost
from batchrunner.simulate.report import SimReport

ROUNDING = 0.002  # of what a part computes: rows whose prompt is known whole


@dataclass(frozen=True, slots=True)
class RunForecast:
    """compute_seconds, memory_seconds: what the arithmetic alone, and reading alone, would take. num_to_compute: prompt
    tokens, those computed again for want of memory included. num_refused: of the rows that were simulated."""

    seconds: float
    compute_seconds: float
    memory_seconds: float
    num_steps: int
    num_to_compute: int
    peak_kv_tokens: int
    most_running: int
    num_refused: int


class NotedWork:
    """Step costs that note what the simulator has found to be the work."""

    def __init__(self, costs: MeasuredSteps) -> None:
        self._costs = costs
        self.work = LeastWork()

    def step(self, schedule: Schedule, num_read_tokens: int | None = None) -> StepCost:
        return self._costs.step(schedule, num_read_tokens)

    def block_seconds(self, source: Place, target: Place) -> float:
        return self._costs.block_seconds(source, target)

    def least_seconds(self, work: LeastWork) -> float:
        self.work = work
        return self._costs.least_seconds(work)


@dataclass(frozen=True, slots=True)
class Part:
    report: SimReport
    compute_seconds: float
    memory_seconds: float
    block_size: int
    work: float
    num_new: int

    @property
    def num_to_compute(self) -> int:
        """Prompt tokens, and all tokens computed again."""
        return self.report.counters.num_computed_prompt_tokens

    @property
    def steady_seconds(self) -> float:
        """Of its rows at the pace of the middle half of them: without the seats filling and emptying."""
        ends = np.sort(np.fromiter(self.report.end_seconds.values(), np.float64))
        if not len(ends):  # all were refused
            return 0.0
        first, last = len(ends) // 4, 3 * len(ends) // 4
        return float(ends[last] - ends[first]) * len(ends) / max(1, last - first)

    def whole(self) -> RunForecast:
        report = self.report
        return RunForecast(
            seconds=report.makespan_seconds,
            compute_seconds=self.compute_seconds,
            memory_seconds=self.memory_seconds,
            num_steps=report.num_steps,
            num_to_compute=self.num_to_compute,
            peak_kv_tokens=report.most_held_blocks * self.block_size,
            most_running=report.most_running,
            num_refused=sum(report.refused.values()),
        )


def scaled(parts: list[Part], work: float, num_new: int) -> RunForecast:
    """parts stand for work and num_new of the whole run; seats fill and empty once."""
    wholes = [part.whole() for part in parts]
    share = work / sum(part.work for part in parts)
    steady = sum(part.steady_seconds for part in parts)
    once = sum(whole.seconds - part.steady_seconds for whole, part in zip(wholes, parts, strict=True)) / len(parts)
    num_again = sum(part.num_to_compute for part in parts) / sum(part.num_new for part in parts)
    return RunForecast(
        seconds=share * steady + once,
        compute_seconds=share * sum(whole.compute_seconds for whole in wholes),
        memory_seconds=share * sum(whole.memory_seconds for whole in wholes),
        num_steps=round(share * sum(whole.num_steps for whole in wholes)),
        num_to_compute=round(num_new * num_again) if num_again > 1 + ROUNDING else num_new,
        peak_kv_tokens=max(whole.peak_kv_tokens for whole in wholes),
        most_running=max(whole.most_running for whole in wholes),
        num_refused=sum(whole.num_refused for whole in wholes),
    )
