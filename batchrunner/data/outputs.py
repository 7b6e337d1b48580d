"""The output: the input's columns, the answer and the bookkeeping of each row, in the order of the input."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from batchrunner.data.spool.spool import Spool
from batchrunner.errors import DataError

ROWS_PER_GROUP = 10_000
ROWS_PER_FILE = 25 * ROWS_PER_GROUP
BOOKKEEPING = pa.struct(
    [
        ("request_id", pa.string()),
        ("finish_reason", pa.string()),
        ("num_prompt_tokens", pa.int32()),
        ("num_output_tokens", pa.int32()),
        ("num_cached_tokens", pa.int32()),
        ("num_preemptions", pa.int32()),
        ("seed", pa.int64()),
        ("error_type", pa.string()),
        ("error", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class OutputFile:
    path: Path
    num_rows: int


class Results:
    """The results of a job by request id, on disk: memory holds their ids and one part at a time."""

    def __init__(self, parts: Iterable[pa.Table], path: Path) -> None:
        ids = []
        with pa.OSFile(str(path), "wb") as sink:
            writer = None
            for part in parts:
                writer = writer or pa.ipc.new_file(sink, part.schema)
                writer.write_table(part)
                ids.append(part["request_id"].combine_chunks())
            assert writer is not None, "there is always at least an empty part"
            writer.close()
        with pa.memory_map(str(path)) as source:
            reader = pa.ipc.open_file(source)
            self._batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
            self._schema = reader.schema
        self._starts = np.cumsum([0, *(batch.num_rows for batch in self._batches)])
        self._ids = pa.concat_arrays(ids)

    def positions(self, request_ids: pa.Array) -> npt.NDArray[np.int64]:
        """Where each request's result lies; -1 for a null id. Raises DataError if a result is missing."""
        found = pc.index_in(request_ids, value_set=self._ids)
        if pc.any(pc.and_(found.is_null(), request_ids.is_valid())).as_py():
            raise DataError("a row has no result although all were computed; the state of the job is damaged")
        positions: npt.NDArray[np.int64] = found.fill_null(-1).to_numpy().astype(np.int64)
        return positions

    def take(self, positions: npt.NDArray[np.int64]) -> pa.Table:
        """The results at positions, in that order; a row of nulls for -1."""
        order = np.argsort(positions, kind="stable")
        sorted_positions = positions[order]
        num_missing = int(np.searchsorted(sorted_positions, 0))
        pieces = [pa.table([pa.nulls(num_missing, field.type) for field in self._schema], schema=self._schema)]
        batch_of = np.searchsorted(self._starts, sorted_positions[num_missing:], side="right") - 1
        for index in np.unique(batch_of):
            local = sorted_positions[num_missing:][batch_of == index] - self._starts[index]
            pieces.append(pa.Table.from_batches([self._batches[index].take(pa.array(local))]))
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_tables(pieces).combine_chunks().take(pa.array(back))


def output_schema(spool: Spool, column: str) -> pa.Schema:
    return spool.columns.schema.append(pa.field(column, pa.string())).append(pa.field("_batchrun", BOOKKEEPING))


def output_tables(spool: Spool, results: Results, column: str) -> Iterator[pa.Table]:
    """The output in input order, a batch at a time. Raises DataError if the input is not what it was when spooled."""
    positions = results.positions(spool.request_ids)
    columns, schema = spool.columns, output_schema(spool, column)
    start = 0
    for inputs in columns.tables():
        end = start + inputs.num_rows
        if end > len(spool):
            raise DataError("the input has grown while the job ran; run the job again")
        found = results.take(positions[start:end])
        arrays = [*inputs.columns, found["text"].cast(pa.string()), _bookkeeping(spool, found, start)]
        yield pa.table(arrays, schema=schema)
        start = end
    if start != len(spool):
        raise DataError(f"the input had {len(spool)} rows when the job began and has {start} now; run the job again")
    columns.check_unchanged()


def _bookkeeping(spool: Spool, found: pa.Table, start: int) -> pa.ChunkedArray:
    """The _batchrun column of the rows from start on: from their results, or from the spool for those never asked."""
    length = found.num_rows
    error = pc.coalesce(found["error"], spool.table["error"].slice(start, length))
    is_answered = pc.is_null(error)
    ids = [request_id and request_id.hex() for request_id in spool.request_ids.slice(start, length).to_pylist()]
    seeds = pa.array([spool.sampling(row).seed for row in range(start, start + length)], pa.int64())
    table = pa.table(
        {
            **{name: found[name] for name in found.column_names},
            "request_id": pa.array(ids, pa.string()),
            "finish_reason": pc.if_else(is_answered, found["finish_reason"], "error"),
            "seed": pc.if_else(is_answered, seeds, pa.scalar(None, pa.int64())),
            "error_type": pc.coalesce(found["error_type"], spool.table["error_type"].slice(start, length)),
            "error": error,
        }
    )
    return table.select([field.name for field in BOOKKEEPING]).cast(pa.schema(list(BOOKKEEPING))).to_struct_array()


def write_output_files(tables: Iterable[pa.Table], schema: pa.Schema, num_rows: int, folder: Path) -> list[OutputFile]:
    """Write data-00000-of-000NN.parquet files into folder (not durable yet); returns them in order."""
    num_files = max(1, -(-num_rows // ROWS_PER_FILE))
    row_groups = _row_groups(tables)
    files: list[OutputFile] = []
    for index in range(num_files):
        path = folder / f"data-{index:05}-of-{num_files:05}.parquet"
        rows = 0
        with pq.ParquetWriter(path, schema, compression="zstd", write_page_checksum=True) as writer:
            while rows < ROWS_PER_FILE and (table := next(row_groups, None)) is not None:
                writer.write_table(table)
                rows += table.num_rows
        files.append(OutputFile(path, rows))
    return files


def _row_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Gather small tables into row groups; ROWS_PER_FILE is a multiple of their size, so files end with a group."""
    gathered: list[pa.Table] = []
    num_rows = 0
    for table in tables:
        while table.num_rows:
            piece = table.slice(0, ROWS_PER_GROUP - num_rows)
            table = table.slice(piece.num_rows)
            gathered.append(piece)
            num_rows += piece.num_rows
            if num_rows == ROWS_PER_GROUP:
                yield pa.concat_tables(gathered)
                gathered, num_rows = [], 0
    if gathered:
        yield pa.concat_tables(gathered)
