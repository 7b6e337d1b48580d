"""One job on its way: its rows, what is known of them, and what is still to ask."""

import hashlib
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import pyarrow.compute as pc

from batchrunner.data.outputs import Results, output_schema, output_tables, write_output_files
from batchrunner.data.prompts import Encoder
from batchrunner.data.spool import Spool, SpooledRequest, write_spool
from batchrunner.engine.request import Completion
from batchrunner.engine_spec import EngineConfig
from batchrunner.errors import DataError, RowError
from batchrunner.plan.order import run_order
from batchrunner.run.output_folder import OutputFolder
from batchrunner.run.state import JobState, open_state
from batchrunner.run.storage import Storage
from batchrunner.run.summary import JobSummary, RunCounters
from batchrunner.spec import ColumnRef, JobSpec


class JobRun:
    """Made by open_job(); its output folder is locked by the caller."""

    def __init__(self, job: JobSpec, folder: OutputFolder, spool: Spool, state: JobState, policy: str) -> None:
        self.job = job
        self.spool = spool
        self.state = state
        self._folder = folder
        self.group = _template_digest(job)
        self._order = run_order(spool.table, spool.request_ids, policy, state.answered_ids())
        self.num_asked = len(self._order)
        self.num_pending = self.num_asked
        self.num_failed = spool.table["error_type"].length() - spool.table["error_type"].null_count

    @property
    def num_done(self) -> int:
        """Rows that need nothing more; equal rows are done together."""
        return len(self.spool) - self.num_pending

    @property
    def mean_tokens(self) -> float:
        """Prompt tokens and max_tokens of a row that can be asked, on average; shared beginnings count for each."""
        sizes = pc.binary_length(self.spool.table["prompt"])
        mean_prompt = (pc.mean(sizes).as_py() or 0.0) / 4
        return mean_prompt + self.spool.default.max_tokens

    def requests(self) -> Iterator[SpooledRequest]:
        """What is still to ask, in the order it should run."""
        for row in self._order.tolist():
            yield self.spool.request(row)

    def saved_tokens(self, request_id: bytes) -> list[int]:
        return self.state.saved.get(request_id, [])

    def finish(self, request_id: bytes, completion: Completion) -> None:
        """Take in a result; an error is one too. With `on_error: stop` an error raises DataError instead."""
        error = completion.error
        if error is not None and self.job.on_error == "stop":
            raise DataError(f"{self.job.name}: {error} (on_error: stop)")
        self.state.finish(
            request_id,
            {
                "text": None if error else completion.text,
                "finish_reason": completion.finish_reason,
                "num_prompt_tokens": completion.num_prompt_tokens,
                "num_output_tokens": len(completion.token_ids),
                "num_cached_tokens": completion.num_cached_tokens,
                "num_preemptions": completion.num_preemptions,
                "error_type": error and error.error_type,
                "error": error and str(error),
            },
        )
        self.num_pending -= 1
        self.num_failed += error is not None

    def write_progress(self, counters: RunCounters) -> None:
        self._folder.write_progress(
            {
                "name": self.job.name,
                "num_rows": len(self.spool),
                "num_done": self.num_done,
                "num_failed": self.num_failed,
                "time": time.time(),
                "run": asdict(counters),
            }
        )

    def complete(self, counters: RunCounters, digest: str) -> JobSummary:
        """All rows are known: write the output, mark it done. Raises StorageError, DataError."""
        self.state.compact()
        results = Results(self.state.results(), self._folder.scratch / "results.arrow")
        summary = JobSummary(self.job.name, str(self._folder.path), run=counters)
        summary.num_distinct_requests = pc.count_distinct(self.spool.request_ids, mode="only_valid").as_py()

        def counted() -> Iterator[Any]:
            for table in output_tables(self.spool, results, self.job.column):
                summary.count(table)
                yield table

        schema = output_schema(self.spool, self.job.column)
        files = write_output_files(counted(), schema, len(self.spool), self._folder.scratch)
        self._folder.publish(files, summary, digest)
        self.state.remove_leftovers()
        self.write_progress(counters)
        shutil.rmtree(self._folder.scratch, ignore_errors=True)
        return summary


def open_job(
    job: JobSpec,
    folder: OutputFolder,
    encoder: Encoder,
    fingerprint: str,
    engine: EngineConfig,
    storage: Storage,
    on_rows: Callable[[int], None],
) -> JobRun:
    """Read the rows of a job and what earlier runs know of it. Raises DataError, StorageError."""
    spool = write_spool(job, encoder, fingerprint, folder.scratch / "spool.arrow", on_rows)
    state = open_state(folder.state, storage)
    return JobRun(job, folder, spool, state, engine.policy)


def _template_digest(job: JobSpec) -> str:
    """The same for jobs that ask the same of other rows. Prompts that are in a column tell nothing: the name does."""
    template = job.model_dump_json(include={"prompt", "messages"})
    if isinstance(job.prompt, ColumnRef) or isinstance(job.messages, ColumnRef):
        template += job.name
    return hashlib.sha256(template.encode()).hexdigest()[:16]


def failed_completion(error: RowError, num_prompt_tokens: int) -> Completion:
    return Completion("", (), "error", num_prompt_tokens, 0, error=error)
