"""The spool: every row of a job as a request, in input order, in one memory-mapped Arrow file.

digest    16 bytes of request identity without its occurrence; null for a row that cannot be asked
prompt    the token ids as big-endian uint32, so that the order of the bytes is the order of the ids
sampling  JSON where a row's parameters differ from the job's own; null otherwise
priority  higher is more urgent
error_type, error
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from batchrunner.data.input_columns import ColumnFinder, InputColumns
from batchrunner.data.prompts import Encoder, PromptBuilder
from batchrunner.data.rows import Row, read_rows
from batchrunner.errors import DataError, RowError
from batchrunner.identity import ID_BYTES, request_digest, with_occurrence
from batchrunner.spec import JobSpec, SamplingParams

SCHEMA = pa.schema(
    [
        ("digest", pa.binary(ID_BYTES)),
        ("prompt", pa.large_binary()),
        ("sampling", pa.string()),
        ("priority", pa.int64()),
        ("error_type", pa.string()),
        ("error", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class SpooledRequest:
    request_id: bytes
    token_ids: list[int]
    sampling: SamplingParams
    priority: int


class Spool:
    """The rows of a job as requests, read from the file that write_spool made."""

    def __init__(self, path: Path, columns: InputColumns, default: SamplingParams) -> None:
        self.columns = columns
        self.default = default
        with pa.memory_map(str(path)) as source:
            self.table: pa.Table = pa.ipc.open_file(source).read_all()
        self.request_ids = self._number_occurrences()

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def request(self, row: int) -> SpooledRequest:
        """The request of a row that has no error."""
        prompt = np.frombuffer(self.table["prompt"][row].as_buffer(), dtype=">u4")
        priority = self.table["priority"][row].as_py()
        return SpooledRequest(self.request_ids[row].as_py(), prompt.tolist(), self.sampling(row), priority)

    def sampling(self, row: int) -> SamplingParams:
        text = self.table["sampling"][row].as_py()
        return self.default if text is None else SamplingParams.model_validate_json(text)

    def _number_occurrences(self) -> pa.Array:
        """Request ids [num_rows]; identical sampled requests get different ones, in input order."""
        chunks = self.table["digest"].chunks
        digests = pa.concat_arrays(chunks) if chunks else pa.array([], pa.binary(ID_BYTES))
        is_greedy_job = self.default.is_greedy and self.table["sampling"].null_count == len(self)
        if is_greedy_job or len(self) == 0:
            return digests
        codes = digests.dictionary_encode().indices.fill_null(-1).to_numpy()
        order = np.argsort(codes, kind="stable")
        is_repeat = np.concatenate([[False], codes[order][1:] == codes[order][:-1]])
        begins = np.maximum.accumulate(np.where(is_repeat, 0, np.arange(len(self))))
        ranks = np.empty(len(self), dtype=np.int64)
        ranks[order] = np.arange(len(self)) - begins
        repeated = [row for row in np.flatnonzero(ranks).tolist() if digests[row].is_valid]
        repeated = [row for row in repeated if not self.sampling(row).is_greedy]
        if not repeated:
            return digests
        ids = digests.to_pylist()
        for row in repeated:
            ids[row] = with_occurrence(ids[row], int(ranks[row]))
        return pa.array(ids, pa.binary(ID_BYTES))


def write_spool(job: JobSpec, encoder: Encoder, fingerprint: str, path: Path, on_rows: Callable[[int], None]) -> Spool:
    """Read, render and tokenise all rows of a job once, streaming. on_rows is told how many rows came through.

    Raises DataError for input that cannot be read as a whole, for columns that collide with the output's or are
    nowhere, and with `on_error: stop` for the first row that is broken.
    """
    builder = PromptBuilder(job, encoder)
    columns = ColumnFinder(job)  # looks at the schemas before an hour of tokenising, not after it
    default = SamplingParams(**job.sampling.constants())
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
        for file in columns.files:
            for rows in read_rows(file, builder.columns):
                columns.see(file, rows)
                records = [_record(row, builder, fingerprint, default, job) for row in rows]
                writer.write_batch(pa.RecordBatch.from_pylist(records, SCHEMA))
                on_rows(len(rows))
    return Spool(path, columns.found(), default)


def _record(
    row: Row, builder: PromptBuilder, fingerprint: str, default: SamplingParams, job: JobSpec
) -> dict[str, Any]:
    try:
        if row.error is not None:
            raise row.error
        prompt = builder.build(row.values)
    except RowError as error:
        message = str(error) if row.error is not None else f"{row.place}: {error}"
        if job.on_error == "stop":
            raise DataError(f"{job.name}: {message} (on_error: stop)") from error
        return {"error_type": error.error_type, "error": message}
    return {
        "digest": request_digest(fingerprint, prompt.token_ids, prompt.sampling),
        "prompt": np.asarray(prompt.token_ids, dtype=">u4").tobytes(),
        "sampling": None if prompt.sampling == default else prompt.sampling.model_dump_json(),
        "priority": prompt.priority,
    }
