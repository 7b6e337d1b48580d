"""A whole run: all jobs of a job file, one engine, one queue."""

import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from batchrunner.checkpoint.storage import Storage
from batchrunner.engine.model.fingerprint import model_fingerprint
from batchrunner.engine.model.model_files import find_model
from batchrunner.engine.request import Completion, Request
from batchrunner.engine.text.tokenizer import Tokenizer
from batchrunner.errors import DataError, StorageError, TierError
from batchrunner.forecast.length_history import LengthHistory
from batchrunner.generate.engine import Engine
from batchrunner.output.folder import OutputFolder
from batchrunner.output.summary import JobSummary, RunCounters
from batchrunner.run.budget import describe_budget
from batchrunner.run.feed import Feed, Unfinished
from batchrunner.run.finished import job_digest
from batchrunner.run.job_run import JobRun, open_job
from batchrunner.run.planned_run import PlannedRun
from batchrunner.run.progress import Progress, Snapshot
from batchrunner.run.shutdown import Shutdown
from batchrunner.run.side_thread import SideThread
from batchrunner.spec.job import JobFile, JobSpec


@dataclass(eq=False, slots=True)
class OpenJob:
    """A job that has work to do, with the digest that will mark it as done."""

    run: JobRun
    digest: str


class Runner:
    """Runs the jobs of a job file whose outputs are not done yet; their folders are locked by the caller."""

    def __init__(self, job_file: JobFile, progress: Progress, shutdown: Shutdown, storage: Storage) -> None:
        self._job_file = job_file
        self._progress = progress
        self._shutdown = shutdown
        self._storage = storage
        self._open: list[OpenJob] = []
        self._summaries: dict[str, JobSummary] = {}
        self._noted_seats = float("inf")  # when last said that few may run
        self._started = time.monotonic()
        self._forecast_seconds = 0.0

    def run(self, jobs: list[JobSpec]) -> dict[str, JobSummary]:
        """Bring the jobs to their end; job name → summary. Raises Interrupted with everything saved."""
        files = find_model(self._job_file.model)
        tokenizer = files.tokenizer_of_prompts()
        fingerprint = model_fingerprint(files, self._job_file.engine)
        with ExitStack() as stack:
            for job in jobs:
                self._open.append(self._open_job(job, tokenizer, fingerprint))
                stack.callback(self._open[-1].run.state.close)
            self._complete_jobs(None)
            if self._open:
                self._progress.note("loading the model")
                history = LengthHistory({job.run.group for job in self._open})
                stack.callback(history.save)
                engine = stack.enter_context(Engine(files, history.known, **self._job_file.engine.model_dump()))
                self._progress.note(engine.kernels)
                self._progress.note(describe_budget(engine.budget, [job.run for job in self._open]))
                runs = [job.run for job in self._open]
                for run in runs:
                    run.refuse_what_never_fits(engine.context_len, engine.scheduler.pool)
                planned = PlannedRun(runs, engine, history.known, runs[0].folder.scratch)
                self._progress.note(planned.describe())
                with SideThread("results") as side:
                    self._generate(engine, planned, side)
        return self._summaries

    def _open_job(self, job: JobSpec, tokenizer: Tokenizer, fingerprint: str) -> OpenJob:
        folder = OutputFolder(Path(job.output), self._storage)
        folder.reopen()
        digest = job_digest(self._job_file, job)  # before reading: what changes later is seen next time
        num_rows = 0

        def on_rows(count: int) -> None:
            nonlocal num_rows
            num_rows += count
            self._progress.reading(job.name, num_rows)
            self._shutdown.check()

        run = open_job(job, folder, tokenizer, fingerprint, self._storage, on_rows)
        self._progress.note(
            f"{job.name}: {len(run.spool):,} rows in {len(run.spool.columns.files):,} files, {run.num_pending:,} "
            f"requests to compute, {run.num_failed:,} rows cannot be asked"
        )
        return OpenJob(run, digest)

    def _generate(self, engine: Engine, planned: PlannedRun, side: SideThread) -> None:
        """Feed, step, and beside the steps take in and save: until every job is complete.

        What is known of a job (its state, its counts) is changed by the side thread alone while steps run.
        """
        feed = Feed(engine, [job.run for job in self._open], partial(self._refuse, side))
        self._started = time.monotonic()
        try:
            while True:
                feed.fill()
                if not engine.has_unfinished:
                    break
                self._shutdown.check()
                for request in engine.step():
                    planned.observe(request)
                    side.do(partial(self._finish, engine, feed.owners.pop(request), request))
                side.check()
                if side.is_idle and any(job.run.state.is_sync_due for job in self._open):
                    side.do(partial(self._save, feed.unfinished(), self._counters(engine)))
                if any(job.run.num_pending == 0 for job in self._open):
                    side.drain()
                    self._complete_jobs(engine)
                if planned.is_due and (found := planned.revise()):
                    self._forecast_seconds = found.seconds
                    self._progress.note(planned.describe_forecast(found, time.monotonic() - self._started))
                self._warn_of_thrashing(engine)
                self._show(engine)
            side.drain()
        except (StorageError, DataError) as error:
            if not isinstance(error, TierError):
                raise  # no journal takes anything more; a second error would hide the first
            side.do(partial(self._save, feed.unfinished(), self._counters(engine)))
            side.drain()
            raise
        except BaseException:
            side.do(partial(self._save, feed.unfinished(), self._counters(engine)))
            side.drain()
            raise
        self._complete_jobs(engine)

    def _finish(self, engine: Engine, job: JobRun, request: Request) -> None:
        job.finish(bytes.fromhex(request.request_id), engine.completion(request))

    def _refuse(self, side: SideThread, job: JobRun, request_id: bytes, completion: Completion) -> None:
        side.do(partial(job.finish, request_id, completion))

    def _save(self, unfinished: list[Unfinished], counters: RunCounters) -> None:
        """Make all results and the tokens of unfinished requests durable."""
        for item in unfinished:
            item.job.state.save(item.request_id, item.output_token_ids)
        for job in list(self._open):
            job.run.state.sync()
            job.run.write_progress(counters)

    def _complete_jobs(self, engine: Engine | None) -> None:
        for job in [job for job in self._open if job.run.num_pending == 0]:
            counters = RunCounters() if engine is None else self._counters(engine)
            self._summaries[job.run.job.name] = job.run.complete(counters, job.digest)
            self._open.remove(job)

    def _counters(self, engine: Engine) -> RunCounters:
        seconds = round(time.monotonic() - self._started, 3)
        block_bytes = engine.budget.block_bytes
        return RunCounters(
            **asdict(engine.counters),
            seconds=seconds,
            forecast_seconds=round(self._forecast_seconds, 3),
            kernels=engine.kernels,
            kv_block_bytes=block_bytes,
        )

    def _warn_of_thrashing(self, engine: Engine) -> None:
        if engine.counters.num_thrashes and engine.num_seats <= self._noted_seats / 2:
            self._noted_seats = engine.num_seats
            self._progress.note(
                f"KV memory is too small for what runs: {engine.counters.num_preemptions:,} preemptions, "
                f"{engine.counters.num_recomputed_tokens:,} of {engine.counters.num_computed_tokens:,} tokens computed "
                f"again. At most {engine.num_seats:,} requests run at once now; a larger pool (engine.kv_memory or "
                "engine.kv_tokens) would help"
            )

    def _show(self, engine: Engine) -> None:
        if not self._open:
            return
        seconds = time.monotonic() - self._started
        runs = [job.run for job in self._open]
        num_pending = sum(run.num_pending for run in runs)
        num_finished = sum(run.num_asked for run in runs) - num_pending
        self._progress.running(
            Snapshot(
                name=runs[0].job.name if len(runs) == 1 else f"{len(runs)} jobs",
                num_rows=sum(len(run.spool) for run in runs),
                num_done=sum(run.num_done for run in runs),
                num_failed=sum(run.num_failed for run in runs),
                num_running=engine.num_running,
                seconds=seconds,
                computed_per_second=engine.counters.num_computed_tokens / seconds,
                output_per_second=engine.counters.num_output_tokens / seconds,
                hit_rate=engine.counters.hit_rate,
                kv_use=engine.kv_use,
                num_preemptions=engine.counters.num_preemptions,
                eta_seconds=seconds * num_pending / num_finished if num_finished > 0 else None,
            )
        )
