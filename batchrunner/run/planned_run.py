"""The plan of a run while it runs: made before the first token, made again once a sample of the answers is there."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from batchrunner.engine.engine import EngineCore
from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.predictors.history import History
from batchrunner.forecast.duration import time_text
from batchrunner.forecast.parts import RunForecast
from batchrunner.forecast.run_speeds import RunSpeeds
from batchrunner.plan.job_plan import SAMPLE_SHARE, Room
from batchrunner.plan.lengths import MIN_KNOWN
from batchrunner.plan.run_plan import JobToPlan, Planner, RunPlan, rows_of
from batchrunner.run.job_run import JobRun
from batchrunner.run.rows_ahead import RowsAhead

MIN_STEPS = 24  # measured, before they say how fast the machine is


class PlannedRun:
    """jobs: those that have rows to ask; each is given the order of its rows. known: lengths of earlier answers.
    folder: for what does not fit in memory. Raises StorageError.

    Where the sizes of the model's family are not known there is a plan, but no forecast.
    """

    def __init__(self, jobs: Sequence[JobRun], engine: EngineCore, known: History, folder: Path) -> None:
        self._jobs = list(jobs)
        self._engine = engine
        self._speeds = RunSpeeds.of_model(engine.files.folder, engine.config, engine.device_kind)
        self._known = History(lengths=known.lengths())
        self._has_forecast = False
        self._to_revise: list[int] = []  # jobs whose sample has ended
        asked = [_asked(job, engine.context_len) for job in jobs]
        room = Room(engine.scheduler.limits.max_running, engine.budget.num_kv_tokens)
        self._planner = Planner(asked, folder, engine.config, self._speeds.pace, room)
        self.plan = self._planner.plan(self._known.lengths())
        for job, plan in zip(self._jobs, self.plan.jobs, strict=True):
            job.ahead = RowsAhead(plan.rows, plan.num_shared_later)
        self._sampled_by = self._sample()
        self._num_sampled = Counter(self._sampled_by.values())  # not ended yet

    def describe(self) -> str:
        """What there is to compute."""
        plan = self.plan
        if not plan.num_rows:
            return "plan: nothing to compute"
        lost = f", {plan.num_lost:,} of them at most lost to balance" if plan.num_lost else ""
        shared = 1 - plan.num_to_compute / max(1, plan.num_prompt_tokens)
        return (
            f"plan: {plan.num_to_compute:,} of {plan.num_prompt_tokens:,} prompt tokens to compute with memory enough "
            f"({shared:.0%} are shared){lost}; {_lengths(plan)}"
        )

    def observe(self, request: Request) -> None:
        """A request has ended. Answers that are not of the sample tell nothing yet: those that end first are short."""
        number = self._sampled_by.pop(request.request_id, None)
        if number is not None:
            self._known.observe(request)
            self._num_sampled[number] -= 1
            if not self._num_sampled[number]:
                self._to_revise.append(number)

    @property
    def is_due(self) -> bool:
        """Whether there is something new: a job's sample has ended, or for the first time how fast the machine is."""
        has_news = bool(self._to_revise) or (not self._has_forecast and self.plan.lengths_are_known)
        return has_news and len(self._engine.step_times) >= MIN_STEPS

    def revise(self) -> RunForecast | None:
        """Plan what is not on its way yet with what is known now; what the whole run will take by that."""
        known = self._known.lengths()
        for number in self._to_revise:
            job = self._jobs[number]
            is_left = np.zeros(len(job.wanted), dtype=np.bool_)
            is_left[job.ahead.rows] = True
            rest = self._planner.plan_rest(number, is_left, known)
            job.ahead = RowsAhead(rest.rows, rest.num_shared_later)
        if self._to_revise:
            self.plan = self._planner.plan(known)
        self._to_revise, self._has_forecast = [], True
        self._speeds.learn(self._engine.step_times)
        return self._speeds.forecast(self.plan, self._engine.budget)

    def describe_forecast(self, found: RunForecast, elapsed_seconds: float) -> str:
        budget = self._engine.budget
        left = max(0.0, found.seconds - elapsed_seconds)
        return (
            f"forecast: {self._speeds.duration(found)} in all, {time_text(left)} of it to come; "
            f"{found.num_to_compute:,} prompt tokens to compute, at most {found.peak_kv_tokens:,} of "
            f"{budget.num_kv_tokens:,} KV tokens in use, {found.most_running:,} requests at once; {_lengths(self.plan)}"
        )

    def _sample(self) -> dict[str, int]:
        """The first rows of each job whose answers' lengths are not known: request id → number of the job."""
        found: dict[str, int] = {}
        for number, (job, plan) in enumerate(zip(self._jobs, self.plan.jobs, strict=True)):
            if not plan.lengths.is_known:
                num_rows = max(MIN_KNOWN, int(SAMPLE_SHARE * len(plan.order)))
                ids = job.spool.request_ids
                found |= {ids[row].as_py().hex(): number for row in plan.rows[:num_rows].tolist()}
        return found


def _asked(job: JobRun, context_len: int) -> JobToPlan:
    """The files of the spool go with the end of their job; the forecast of the whole run asks for its rows still."""
    spool = job.spool
    return JobToPlan(spool, rows_of(spool, context_len), job.wanted, job.group, spool.mapped_token_ids)


def _lengths(plan: RunPlan) -> str:
    mean = sum(job.lengths.expected.sum() for job in plan.jobs) / max(1, plan.num_rows)
    sources = list(dict.fromkeys(job.lengths.source for job in plan.jobs))
    return f"answers of {mean:,.0f} tokens on average ({'; '.join(sources)})"
