"""The spool: every row of a job as a request, in input order, in memory-mapped Arrow files.

It says what is asked, not who is asked: it outlives a change of the model's weights. batch.py says what it holds.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from batchrunner.data.input.input_columns import InputColumns
from batchrunner.data.prompt.prompts import Encoder, PromptBuilder
from batchrunner.data.spool.batch import SCHEMA
from batchrunner.data.spool.folder import SpoolFolder
from batchrunner.data.spool.inputs import FieldOrders, SpoolInputs
from batchrunner.data.spool.writer import write_rows
from batchrunner.errors import DataError
from batchrunner.identity import ID_BYTES, request_mask
from batchrunner.spec.job import JobSpec
from batchrunner.spec.sampling import SamplingParams

_PROMPTS = pa.schema([SCHEMA.field("prompt")])
_SMALL = pa.schema([field for field in SCHEMA if field.name not in ("prompt", "digest")])
_PROMPT_BATCH_SCHEMA = pa.schema([("row", pa.int64()), ("prompt", pa.large_binary())])


@dataclass(frozen=True, slots=True)
class SpooledRequest:
    request_id: bytes
    token_ids: list[int]
    sampling: SamplingParams
    priority: int


class Spool:
    """The rows of a job as requests. Made by prepare_spool.

    table: all columns but prompt and digest, in memory. prompts: mapped; going through all of them makes the files
    resident, which prompt_batches does not. default: the parameters of rows that choose none of their own.
    fingerprint: of the model that is asked; without one, request_ids tell equal requests apart and no more.
    """

    def __init__(
        self, paths: Sequence[Path], columns: InputColumns, default: SamplingParams, fingerprint: str = ""
    ) -> None:
        self.columns = columns
        self.default = default
        self._paths = paths
        self._fingerprint = fingerprint
        self.table = _copied(paths, _SMALL)

    def for_model(self, fingerprint: str) -> "Spool":
        """The same rows, asked of the model with this fingerprint."""
        return Spool(self._paths, self.columns, self.default, fingerprint)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @cached_property
    def prompts(self) -> pa.ChunkedArray:
        return pa.concat_tables([_PROMPTS.empty_table(), *map(_mapped_prompts, self._paths)])["prompt"]

    @property
    def num_tokens(self) -> pa.ChunkedArray:
        """Tokens of each row's prompt (int64 [num_rows]); null for rows that cannot be asked."""
        return self.table["num_tokens"]

    @cached_property
    def request_ids(self) -> pa.Array:
        """16 bytes for each row; null for rows that cannot be asked. See identity.request_id."""
        if len(self) == 0:
            return pa.array([], pa.binary(ID_BYTES))
        digests = _copied(self._paths, pa.schema([SCHEMA.field("digest")]))["digest"].combine_chunks()
        validity, values = digests.buffers()
        ids = np.frombuffer(values, dtype=np.uint64, count=2 * len(self)).reshape(-1, 2).copy()
        occurrences = _occurrences(digests, self.table["is_greedy"])
        masks = b"".join(request_mask(self._fingerprint, index) for index in range(int(occurrences.max()) + 1))
        ids ^= np.frombuffer(masks, dtype=np.uint64).reshape(-1, 2)[occurrences]
        return pa.FixedSizeBinaryArray.from_buffers(digests.type, len(self), [validity, pa.py_buffer(ids)])

    def request(self, row: int) -> SpooledRequest:
        """The request of a row that has no error."""
        priority = self.table["priority"][row].as_py()
        return SpooledRequest(
            self.request_ids[row].as_py(), _token_ids(self.prompts[row]), self.sampling(row), priority
        )

    def token_ids(self, rows: npt.NDArray[np.int64]) -> list[list[int]]:
        """The prompts of some rows that can be asked. Read one file after the other, so that none stays resident."""
        found: list[list[int]] = [[]] * len(rows)
        order = np.argsort(rows, kind="stable")
        first, place = 0, 0
        for path in self._paths:
            prompts = _mapped_prompts(path)["prompt"]
            while place < len(order) and rows[order[place]] < first + len(prompts):
                found[order[place]] = _token_ids(prompts[int(rows[order[place]]) - first])
                place += 1
            first += len(prompts)
        return found

    def mapped_token_ids(self, rows: npt.NDArray[np.int64]) -> list[list[int]]:
        """The same from the mapped files, which may be gone since they were mapped."""
        return [_token_ids(self.prompts[row]) for row in rows.tolist()]

    def sampling(self, row: int) -> SamplingParams:
        text = self.table["sampling"][row].as_py()
        return self.default if text is None else SamplingParams.model_validate_json(text)

    def prompt_batches(self) -> Iterator[pa.RecordBatch]:
        """row (int64) and prompt of the rows that can be asked, in input order, a thousand or so at a time.

        The files are read, not mapped, so that no more than a batch is in memory.
        """
        first = 0
        for path in self._paths:
            with pa.OSFile(str(path)) as source, pa.ipc.open_file(source) as reader:
                for index in range(reader.num_record_batches):
                    prompts = reader.get_batch(index).column("prompt")
                    rows = pa.array(np.arange(first, first + len(prompts)))
                    is_asked = prompts.is_valid()
                    arrays = [rows.filter(is_asked), prompts.filter(is_asked)]
                    yield pa.RecordBatch.from_arrays(arrays, schema=_PROMPT_BATCH_SCHEMA)
                    first += len(prompts)


def prepare_spool(
    job: JobSpec,
    encoder: Encoder,
    folder: Path,
    on_rows: Callable[[int], None],
    field_orders: FieldOrders | None = None,
) -> Spool:
    """The spool of a job in a folder of its own: what is there of it is used, the rest is made.

    on_rows is told how many rows came through: all at once if all were there. It may raise; what is whole stays.
    field_orders: [num_rows, num_fields], the order of the job's fields in each row; None: the job's own.

    Raises JobFileError for a template that does not compile, OSError, and what writer.write_rows raises.
    """
    builder = PromptBuilder(job, encoder)
    inputs = SpoolInputs.of(job, encoder.identity, field_orders)
    files = SpoolFolder(folder, inputs)
    if files.columns is not None:
        on_rows(files.num_rows)
        return Spool(files.paths, files.columns, builder.default)
    columns = write_rows(files, job, builder, field_orders, on_rows)
    if columns.stamps != inputs.stamps:
        raise DataError(f"{job.name}: an input file has changed while the job ran; run the job again")
    files.complete(columns)
    return Spool(files.paths, columns, builder.default)


def _mapped(path: Path) -> pa.Table:
    """Nothing of it is resident before it is read. (To include some fields only makes Arrow read and keep them all.)"""
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


def _copied(paths: Sequence[Path], schema: pa.Schema) -> pa.Table:
    """Some columns. Mapped, each value would take the pages of its neighbours with it, prompts for the most part."""
    copies = [_mapped(path).select(schema.names).combine_chunks() for path in paths]
    return pa.concat_tables([schema.empty_table(), *copies])


def _mapped_prompts(path: Path) -> pa.Table:
    return _mapped(path).select(_PROMPTS.names)


def _token_ids(prompt: pa.LargeBinaryScalar) -> list[int]:
    token_ids: list[int] = np.frombuffer(prompt.as_buffer(), dtype=">u4").tolist()
    return token_ids


def _occurrences(digests: pa.Array, is_greedy: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """How many earlier rows ask the same [num_rows]; 0 for greedy ones, since the same question has the same answer."""
    found = np.zeros(len(digests), dtype=np.int64)
    sampled = np.flatnonzero(pc.equal(is_greedy, False).fill_null(False).to_numpy())
    if not len(sampled):
        return found
    codes = digests.take(pa.array(sampled)).dictionary_encode().indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    is_first = np.concatenate([[True], codes[order][1:] != codes[order][:-1]])
    places = np.arange(len(codes))
    begins = np.maximum.accumulate(np.where(is_first, places, 0))
    found[sampled[order]] = places - begins
    return found
