"""Read the rows of input files, in order and in bounded memory."""

import gzip
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from batchrunner.data.sources import InputFile
from batchrunner.errors import DataError, RowError

BATCH_ROWS = 1024
MAX_LINE_BYTES = 64 * 2**20
# A compressed file may not grow without bound: beyond this many bytes it must stay below this ratio.
UNSUSPICIOUS_BYTES = 2**30
MAX_RATIO = 200


@dataclass(frozen=True, slots=True)
class Row:
    """One input row. place names its file and line (or row) for people; error is set if it could not be read."""

    values: dict[str, Any]
    place: str
    error: RowError | None = None


def open_parquet(file: InputFile) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file.path, page_checksum_verification=True)
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
    if file.format == "parquet":
        number = 0
        for table in parquet_tables(file, columns):
            rows = table.to_pylist() if table.num_columns else [{} for _ in range(table.num_rows)]
            yield [Row(values, f"{file.path}, row {number + i}") for i, values in enumerate(rows)]
            number += len(rows)
        return
    batch: list[Row] = []
    for number, line in _lines(file.path):
        batch.append(_parse_line(line, f"{file.path}, line {number}"))
        if len(batch) == BATCH_ROWS:
            yield batch
            batch = []
    if batch:
        yield batch


def _lines(path: Path) -> Iterator[tuple[int, bytes | None]]:
    """(line number from 1, line) for every line that is not blank; None for a line that is too long."""
    size = max(path.stat().st_size, 1)
    num_bytes = 0
    number = 0
    try:
        with _open(path) as stream:
            while line := stream.readline(MAX_LINE_BYTES + 1):
                number += 1
                is_too_long = len(line) > MAX_LINE_BYTES
                rest = line
                while is_too_long and rest and not rest.endswith(b"\n"):
                    rest = stream.readline(MAX_LINE_BYTES)
                    num_bytes += len(rest)
                num_bytes += len(line)
                if num_bytes > UNSUSPICIOUS_BYTES and num_bytes > MAX_RATIO * size:
                    raise DataError(f"{path}: unpacks to over {MAX_RATIO} times its size; if that is right, unpack it")
                if is_too_long:
                    yield number, None
                elif not line.isspace():
                    yield number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
    except (OSError, EOFError, zstandard.ZstdError) as error:
        raise DataError(f"{path}: unreadable after line {number}: {error}") from error


def _open(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        return io.BufferedReader(gzip.open(path, "rb"), 2**20)
    if path.suffix == ".zst":
        reader = zstandard.ZstdDecompressor().stream_reader(path.open("rb"), read_across_frames=True, closefd=True)
        return io.BufferedReader(reader, 2**20)
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
