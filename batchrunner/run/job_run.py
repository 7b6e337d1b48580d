"""One job on its way: its rows, what is known of them, and what is still to ask."""

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow.compute as pc

from batchrunner.checkpoint.state import JobState, open_state
from batchrunner.checkpoint.storage import Storage
from batchrunner.data.outputs import Results, output_schema, output_tables, write_output_files
from batchrunner.data.prompt.prompts import Encoder
from batchrunner.data.spool.spool import Spool
from batchrunner.engine.kv.block_pool import BlockPool
from batchrunner.engine.request import Completion
from batchrunner.engine.scheduling.limits import check_sizes
from batchrunner.errors import DataError, RowError
from batchrunner.forecast.length_history import group_of
from batchrunner.output.folder import OutputFolder
from batchrunner.output.summary import JobSummary, RunCounters
from batchrunner.plan.order import wanted_rows
from batchrunner.plan.run_plan import is_hopeless, rows_of
from batchrunner.plan.spooling import spool_of
from batchrunner.run.rows_ahead import RowsAhead
from batchrunner.spec.job import JobSpec


class JobRun:
    """Made by open_job(); its output folder is locked by the caller."""

    def __init__(self, job: JobSpec, folder: OutputFolder, spool: Spool, state: JobState) -> None:
        self.job = job
        self.spool = spool
        self.state = state
        self.folder = folder
        self.group = group_of(job)
        self.wanted = wanted_rows(spool.request_ids, state.answered_ids())
        self.ahead = RowsAhead.as_they_stand(self.wanted)
        self.num_asked = len(self.ahead)
        self.num_pending = self.num_asked
        self.num_failed = spool.table["error_type"].length() - spool.table["error_type"].null_count

    @property
    def num_done(self) -> int:
        """Rows that need nothing more; equal rows are done together."""
        return len(self.spool) - self.num_pending

    @property
    def mean_tokens(self) -> float:
        """Prompt tokens and max_tokens of a row that can be asked, on average; shared beginnings count for each."""
        found: float = pc.mean(pc.add(self.spool.num_tokens, self.spool.table["max_tokens"])).as_py() or 0.0
        return found

    def refuse_what_never_fits(self, context_len: int, pool: BlockPool) -> None:
        """Make error rows of the requests that the engine could never answer, before any token is computed."""
        rows = rows_of(self.spool, context_len)
        hopeless = self.wanted & is_hopeless(rows, pool.block_size, pool.num_blocks)
        for row in np.flatnonzero(hopeless).tolist():
            asked = self.spool.request(row)
            try:
                check_sizes(len(asked.token_ids), asked.sampling.max_tokens, context_len, pool)
            except RowError as error:
                named = RowError(error.error_type, f"row {row:,} of the input, from 0: {error}")
                self.finish(asked.request_id, failed_completion(named, len(asked.token_ids)))
                self.wanted[row] = False
        self.ahead = RowsAhead.as_they_stand(self.wanted)

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
        self.folder.write_progress(
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
        results = Results(self.state.results(), self.folder.scratch / "results.arrow")
        summary = JobSummary(self.job.name, str(self.folder.path), run=counters)
        summary.num_distinct_requests = pc.count_distinct(self.spool.request_ids, mode="only_valid").as_py()

        def counted() -> Iterator[Any]:
            for table in output_tables(self.spool, results, self.job.column):
                summary.count(table)
                yield table

        schema = output_schema(self.spool, self.job.column)
        files = write_output_files(counted(), schema, len(self.spool), self.folder.scratch)
        self.folder.publish(files, summary, digest)
        self.state.remove_leftovers()
        self.write_progress(counters)
        for folder in (self.folder.scratch, self.folder.spool):
            shutil.rmtree(folder, ignore_errors=True)
        return summary


def open_job(
    job: JobSpec,
    folder: OutputFolder,
    encoder: Encoder,
    fingerprint: str,
    storage: Storage,
    on_rows: Callable[[int], None],
) -> JobRun:
    """Read the rows of a job and what earlier runs know of it. Raises DataError, StorageError."""
    spool = spool_of(job, encoder, folder.spool, on_rows).for_model(fingerprint)
    state = open_state(folder.state, storage)
    return JobRun(job, folder, spool, state)


def failed_completion(error: RowError, num_prompt_tokens: int) -> Completion:
    return Completion("", (), "error", num_prompt_tokens, 0, error=error)
