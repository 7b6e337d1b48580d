"""Sorting more rows than fit in memory, by DuckDB, in a folder of the job's own."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import duckdb
import pyarrow as pa

from batchrunner.errors import StorageError

MAX_THREADS = 2
THREAD_BYTES = 100_000_000  # a thread sorts 122,880 rows at a time, whatever they weigh: here up to 600 bytes each
ROWS_PER_BATCH = 16_384


class ExternalSorter:
    """A DuckDB of its own, which reads and writes nothing but its folder and the rows it is given.

    folder: exists already, and is the caller's to remove. memory_bytes: for DuckDB's buffers, at least THREAD_BYTES;
    rows of up to 300 bytes then sort, however many they are. The process grows by up to 100 MB more than that.
    """

    def __init__(self, folder: Path, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self._connection = duckdb.connect(":memory:", config=_settings(folder, memory_bytes))
        # After two seconds it would be drawn on standard output, where results go. Not an option of connect().
        self._connection.execute("SET enable_progress_bar = false")
        self._connection.execute("SET lock_configuration = true")

    def __enter__(self) -> "ExternalSorter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connection.close()

    def sort(self, batches: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        """The rows in ascending order of all columns, the first one first; binary ones in the order of their bytes.

        One sort at a time. Raises OSError where the disk is full or fails, StorageError where memory_bytes is too low.
        """
        with self._as_our_errors():
            # A relation is streamed; execute() would hold the whole result in memory before its first row.
            reader = self._connection.from_arrow(batches).order("ALL").to_arrow_reader(ROWS_PER_BATCH)
        while True:
            with self._as_our_errors():
                batch = next(reader, None)
            if batch is None:
                return
            yield batch

    @contextmanager
    def _as_our_errors(self) -> Iterator[None]:
        try:
            yield
        except duckdb.IOException as error:
            raise OSError(str(error)) from error
        except duckdb.OutOfMemoryException as error:
            if "max_temp_directory_size" in str(error):  # by default 90 % of what is free on the disk
                raise OSError(str(error).splitlines()[0]) from error
            raise StorageError(
                f"memory_bytes: {self._memory_bytes:,} is too little to sort prompts; give at least {THREAD_BYTES:,}"
            ) from error


def _settings(folder: Path, memory_bytes: int) -> dict[str, str | bool | int | float | list[str]]:
    """Nothing of the user's or the network's is read: no extensions, no secrets, no variables."""
    return {
        "memory_limit": f"{memory_bytes}B",
        "threads": max(1, min(MAX_THREADS, os.cpu_count() or 1, memory_bytes // THREAD_BYTES)),
        "temp_directory": str(folder),
        "allow_persistent_secrets": False,
        "autoload_known_extensions": False,
        "autoinstall_known_extensions": False,
        "allow_community_extensions": False,
        "python_enable_replacements": False,
    }
