"""The streaming pass over the rows of a job: read and rendered here, tokenised on all cores meanwhile, in order.

The tokenizer lets go of Python's lock while it encodes a batch. A few batches are on their way at a time.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from batchrunner.data.input.input_columns import ColumnFinder, InputColumns
from batchrunner.data.input.rows import Row, read_rows
from batchrunner.data.prompt.prompts import Prompt, PromptBuilder
from batchrunner.data.spool.batch import SCHEMA, BrokenRow, record_batch
from batchrunner.data.spool.folder import SpoolFolder
from batchrunner.data.spool.inputs import FieldOrders
from batchrunner.errors import DataError, RowError
from batchrunner.spec.job import JobSpec

SEGMENT_ROWS = 65_536
BATCH_ROWS = 1024  # enough texts for many cores, and little memory
MAX_BATCHES = 3  # on their way: one that is rendered, one that is tokenised, one that waits for it


@dataclass(frozen=True, slots=True)
class _RowBatch:
    """first: the number of its first row in the whole input."""

    first: int
    rows: list[Row]


@dataclass(frozen=True, slots=True)
class _Rendered:
    """Rows on their way: token_ids will be those of the rows that can be asked."""

    rows: list[Prompt | BrokenRow]
    token_ids: Future[list[list[int]]]


def write_rows(
    folder: SpoolFolder,
    job: JobSpec,
    builder: PromptBuilder,
    field_orders: FieldOrders | None,
    on_rows: Callable[[int], None],
) -> InputColumns:
    """Write the segments that the folder lacks; rows of those it has are read, since columns are found over all rows.

    on_rows is told how many rows came through, a batch at a time. Raises DataError for input that cannot be read as a
    whole, for columns that collide with the output's or are nowhere, and with `on_error: stop` for the first row that
    is broken.
    """
    finder = ColumnFinder(job)  # looks at the schemas before an hour of tokenising, not after it
    renderer = _Renderer(job, builder, field_orders)
    num_kept = folder.num_rows
    on_their_way: deque[_Rendered] = deque()
    with ThreadPoolExecutor(1, "tokenizer") as tokenizer, closing(_SegmentWriter(folder)) as segments:

        def finish_first() -> None:
            done = on_their_way.popleft()
            segments.write(record_batch(done.rows, done.token_ids.result(), builder.default))
            on_rows(len(done.rows))

        for batch in _row_batches(finder, builder.columns):
            if batch.first < num_kept:
                on_rows(len(batch.rows))
                continue
            rows = renderer.render(batch)
            texts = [row.text for row in rows if isinstance(row, Prompt)]
            on_their_way.append(_Rendered(rows, tokenizer.submit(builder.encode, texts)))
            if len(on_their_way) == MAX_BATCHES:
                finish_first()
        while on_their_way:
            finish_first()
        segments.end_segment()
    return finder.found()


def _row_batches(finder: ColumnFinder, columns: Sequence[str] | None) -> Iterator[_RowBatch]:
    """All rows, whatever file they are in, in batches that end where a segment does."""
    first, gathered = 0, list[Row]()
    for file in finder.files:
        for rows in read_rows(file, None if columns is None else list(columns)):
            finder.see(file, rows)
            gathered += rows
            while len(gathered) >= (size := min(BATCH_ROWS, SEGMENT_ROWS - first % SEGMENT_ROWS)):
                yield _RowBatch(first, gathered[:size])
                first, gathered = first + size, gathered[size:]
    if gathered:
        yield _RowBatch(first, gathered)


class _Renderer:
    def __init__(self, job: JobSpec, builder: PromptBuilder, field_orders: FieldOrders | None) -> None:
        self._job = job
        self._builder = builder
        self._field_orders = field_orders

    def render(self, batch: _RowBatch) -> list[Prompt | BrokenRow]:
        """Raises DataError with `on_error: stop` if a row is broken."""
        return [self._rendered(batch.first + index, row) for index, row in enumerate(batch.rows)]

    def _rendered(self, number: int, row: Row) -> Prompt | BrokenRow:
        try:
            if row.error is not None:
                raise row.error
            return self._builder.build(row.values, self._order_of(number))
        except RowError as error:
            message = str(error) if row.error is not None else f"{row.place}: {error}"
            if self._job.on_error == "stop":
                raise DataError(f"{self._job.name}: {message} (on_error: stop)") from error
            return BrokenRow(error.error_type, message)

    def _order_of(self, number: int) -> list[int] | None:
        if self._field_orders is None:
            return None
        if number >= len(self._field_orders):
            raise DataError(f"{self._job.name}: the input has grown since its fields were ordered; run the job again")
        order: list[int] = self._field_orders[number].tolist()
        return order


class _SegmentWriter:
    """Writes batches into one segment after the other."""

    def __init__(self, folder: SpoolFolder) -> None:
        self._folder = folder
        self._num_rows = 0  # in the segment that is being written
        self._sink: Any = None
        self._writer: Any = None

    def write(self, batch: pa.RecordBatch) -> None:
        if self._sink is None:
            self._sink = pa.OSFile(str(self._folder.temporary), "wb")
            self._writer = pa.ipc.new_file(self._sink, SCHEMA)
        self._writer.write_batch(batch)
        self._num_rows += batch.num_rows
        if self._num_rows == SEGMENT_ROWS:
            self.end_segment()

    def end_segment(self) -> None:
        """What was written since the last segment is one."""
        if self._sink is not None:
            self._writer.close()
            self._sink.close()
            self._folder.add_segment(self._num_rows)
            self._sink, self._num_rows = None, 0

    def close(self) -> None:
        """A segment that was not ended is dropped."""
        if self._sink is not None:
            self._sink.close()
            self._folder.temporary.unlink(missing_ok=True)
