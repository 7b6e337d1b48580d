"""Read the rows of input files, in order and in bounded memory."""

import gzip
import io
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from batchrunner.data.input.sources import InputFile
from batchrunner.data.input.zstd_stream import ZstdStream
from batchrunner.errors import DataError, RowError

BATCH_ROWS = 1024
MAX_LINE_BYTES = 64 * 2**20
# A compressed file may not grow without bound: beyond this many bytes it must stay below this ratio.
UNSUSPICIOUS_BYTES = 2**30
MAX_RATIO = 200
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# What pyarrow raises for a value that Python cannot hold: bytes that are no text, years beyond 9999, unknown time zones
_NO_PYTHON_VALUE = (ValueError, OverflowError, LookupError, pa.ArrowException)


@dataclass(frozen=True, slots=True)
class Row:
    """One input row. place names its file and line (or row) for people; error is set if it could not be read."""

    values: dict[str, Any]
    place: str
    error: RowError | None = None


def open_parquet(file: InputFile) -> pq.ParquetFile:
    try:
        # What is buffered ahead stays in memory until the file is closed: 400 bytes a row of 200 tokens.
        return pq.ParquetFile(file.path, page_checksum_verification=True, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{file.path}: not readable as Parquet: {error}") from error


def parquet_tables(file: InputFile, columns: list[str] | None = None) -> Iterator[pa.Table]:
    """Tables of at most BATCH_ROWS rows. columns that the file lacks are left out."""
    with open_parquet(file) as parquet:
        known = set(parquet.schema_arrow.names)
        chosen = None if columns is None else [name for name in columns if name in known]
        try:
            for batch in parquet.iter_batches(BATCH_ROWS, columns=chosen):
                yield pa.Table.from_batches([batch])
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{file.path}: damaged: {error}") from error


def read_rows(file: InputFile, columns: list[str] | None = None) -> Iterator[list[Row]]:
    """Lists of at most BATCH_ROWS rows. columns: those that matter (JSONL rows always have all)."""
    return _parquet_rows(file, columns) if file.format == "parquet" else _json_rows(file.path)


def _parquet_rows(file: InputFile, columns: list[str] | None) -> Iterator[list[Row]]:
    number = 0
    for table in parquet_tables(file, columns):
        places = [f"{file.path}, row {number + i}" for i in range(table.num_rows)]
        number += table.num_rows
        try:
            values = table.to_pylist() if table.num_columns else [{} for _ in places]
        except _NO_PYTHON_VALUE:
            yield [_one_parquet_row(table.slice(i, 1), place) for i, place in enumerate(places)]
        else:
            yield [Row(row, place) for row, place in zip(values, places, strict=True)]


def _one_parquet_row(table: pa.Table, place: str) -> Row:
    """The only row of the table, which may hold what Python cannot."""
    values = {}
    for name in table.column_names:
        try:
            values[name] = table[name][0].as_py()
        except UnicodeDecodeError as error:
            message = f"{place}: column {name!r} is not valid UTF-8: {error.reason}"
            return Row({}, place, RowError("bad_encoding", message))
        except _NO_PYTHON_VALUE as error:
            return Row({}, place, RowError("bad_value", f"{place}: column {name!r} cannot be read: {error}"))
    return Row(values, place)


def _json_rows(path: Path) -> Iterator[list[Row]]:
    batch: list[Row] = []
    for number, line in _lines(path):
        batch.append(_parse_line(line, f"{path}, line {number}"))
        if len(batch) == BATCH_ROWS:
            yield batch
            batch = []
    if batch:
        yield batch


def _lines(path: Path) -> Iterator[tuple[int, bytes | None]]:
    """(line number from 1, line) for every line that is not blank; None for a line that is too long."""
    num_bytes = 0
    number = 0
    try:
        size = max(path.stat().st_size, 1)
        with _open(path) as stream:
            while line := stream.readline(MAX_LINE_BYTES + 1):
                number += 1
                is_too_long = len(line) > MAX_LINE_BYTES and not line.endswith(b"\n")
                rest = line
                while is_too_long and rest and not rest.endswith(b"\n"):
                    rest = stream.readline(MAX_LINE_BYTES)
                    num_bytes += len(rest)
                num_bytes += len(line)
                if num_bytes > UNSUSPICIOUS_BYTES and num_bytes > MAX_RATIO * size:
                    raise DataError(f"{path}: unpacks to over {MAX_RATIO} times its size; if that is right, unpack it")
                line = line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line
                if is_too_long:
                    yield number, None
                elif line and not line.isspace():
                    yield number, line
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        raise DataError(f"{path}: unreadable after line {number}: {error}") from error


def _open(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        return io.BufferedReader(gzip.open(path, "rb"), 2**20)
    if path.suffix == ".zst":
        return io.BufferedReader(ZstdStream(path), 2**20)
    return path.open("rb", 2**20)


def _parse_line(line: bytes | None, place: str) -> Row:
    if line is None:
        return Row({}, place, RowError("line_too_long", f"{place}: longer than {MAX_LINE_BYTES:,} bytes"))
    try:
        text = line.decode("utf-8")
        values = json.loads(text)
        # Half of a surrogate pair is valid JSON, but no text: it could be neither tokenised nor written.
        json.dumps(values, ensure_ascii=False).encode("utf-8")
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        return Row({}, place, RowError("bad_encoding", f"{place}: not valid UTF-8: {error.reason}"))
    except (ValueError, RecursionError) as error:
        return Row({}, place, RowError("bad_json", f"{place}: not valid JSON: {error}: {_excerpt(line)}"))
    if not isinstance(values, dict):
        return Row({}, place, RowError("bad_json", f"{place}: not a JSON object: {_excerpt(line)}"))
    return Row(values, place)


def _excerpt(line: bytes) -> str:
    text = line.decode("utf-8", "replace").strip()
    return text if len(text) <= 80 else text[:77] + "…"
