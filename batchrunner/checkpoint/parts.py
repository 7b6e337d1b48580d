"""Parts: finished results in immutable Parquet files, each either committed whole or not there."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from batchrunner.checkpoint.storage import Storage, sha256_file
from batchrunner.errors import DataError, StorageError
from batchrunner.identity import ID_BYTES

SCHEMA = pa.schema(
    [
        ("request_id", pa.binary(ID_BYTES)),
        ("text", pa.large_string()),
        ("finish_reason", pa.string()),
        ("num_prompt_tokens", pa.int32()),
        ("num_output_tokens", pa.int32()),
        ("num_cached_tokens", pa.int32()),
        ("num_preemptions", pa.int32()),
        ("error_type", pa.string()),
        ("error", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Part:
    """A committed part, as its COMMIT record names it."""

    name: str
    num_rows: int
    sha256: str

    def to_record(self) -> dict[str, Any]:
        return asdict(self)


def write_part(folder: Path, name: str, records: Iterable[dict[str, Any]], storage: Storage) -> Part:
    """Write records to folder/name, durable and read back; the caller commits it by a journal record.

    Raises StorageError, also if the name is taken: a part is never replaced.
    """
    table = pa.Table.from_pylist(list(records), SCHEMA)
    temporary, final = folder / f"{name}.tmp", folder / name
    try:
        pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)
        check_parquet(temporary, table.num_rows)
        digest = sha256_file(temporary)
        storage.publish(temporary, final)
    except OSError as error:
        raise StorageError(f"{final}: cannot write: {error.strerror or error}") from error
    return Part(name, table.num_rows, digest)


def check_parquet(path: Path, num_rows: int) -> None:
    """Read a file's footer back. Raises StorageError if it is not the one that was meant."""
    try:
        found = pq.read_metadata(path).num_rows
    except pa.ArrowException as error:
        raise StorageError(f"{path}: what was written cannot be read back: {error}") from error
    if found != num_rows:
        raise StorageError(f"{path}: {num_rows} rows were written, {found} are there")


def read_part(folder: Path, part: Part) -> pa.Table:
    """Raises DataError if the part is missing or is not byte for byte what was committed."""
    path = folder / part.name
    remedy = "restore it, or remove the output folder to compute everything anew"
    if not path.exists():
        raise DataError(f"{path}: the part was committed but is missing; {remedy}")
    if sha256_file(path) != part.sha256:
        raise DataError(f"{path}: the part has changed since it was committed; {remedy}")
    try:
        return pq.read_table(path, schema=SCHEMA, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: unreadable: {error}; {remedy}") from error
