"""What is known of a job so far, kept through any interruption.

    .batchrun/journal/000007.journal    start · progress · finished · commit …    one is current; it names all parts
    .batchrun/parts/000003.parquet      finished results, immutable; named after the journal that commits it

Every attempt starts a new journal that carries over what the ones before it knew, and only then removes them:

    start    {parts}                  the parts committed so far
    progress {id, at, ids}            output tokens of a running request, from output position `at` on
    finished {id, …}                  a result
    commit   {name, num_rows, sha256} a part holds the results finished so far

A result may be known twice (its journal outlived a commit); results are kept by request id, so nothing is twice.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from batchrunner.checkpoint.journal import Journal, JournalContents, read_journal
from batchrunner.checkpoint.parts import SCHEMA, Part, read_part, write_part
from batchrunner.checkpoint.storage import Storage
from batchrunner.errors import OutputError, StorageError
from batchrunner.identity import ID_BYTES

PART_ROWS = 5_000


class JobState:
    """The journal and the parts of one job. Use open_state()."""

    def __init__(self, folder: Path, storage: Storage) -> None:
        self._journals = folder / "journal"
        self._parts_folder = folder / "parts"
        self._storage = storage
        self.parts: list[Part] = []
        self.saved: dict[bytes, list[int]] = {}  # output tokens of requests that are not finished
        self._finished: dict[bytes, dict[str, Any]] = {}  # results that are in no part yet
        self._journal: Journal

    def answered_ids(self) -> pa.Array:
        """Ids of all results that are no errors. Reads the parts, and so verifies them.

        A request that failed is asked again by the next run: more memory or another version may answer it.
        """
        answered = [request_id for request_id, result in self._finished.items() if result["error_type"] is None]
        ids = [pa.array(answered, pa.binary(ID_BYTES))]
        for part in self.parts:
            table = read_part(self._parts_folder, part)
            ids.append(table.filter(pc.is_null(table["error_type"]))["request_id"].combine_chunks())
        return pa.concat_arrays(ids)

    def save(self, request_id: bytes, output_token_ids: list[int]) -> None:
        """Note the tokens of a running request. Durable after the next sync()."""
        before = self.saved.get(request_id, [])
        if len(output_token_ids) > len(before):
            new = output_token_ids[len(before) :]
            self._journal.append({"kind": "progress", "id": request_id, "at": len(before), "ids": new})
            self.saved[request_id] = list(output_token_ids)

    def finish(self, request_id: bytes, result: dict[str, Any]) -> None:
        """Note a result. Durable after the next sync(), or at once if it completes a part."""
        self._journal.append({"kind": "finished", "id": request_id, **result})
        self._finished[request_id] = result
        self.saved.pop(request_id, None)
        if len(self._finished) >= PART_ROWS:
            self.compact()

    @property
    def is_sync_due(self) -> bool:
        return self._journal.is_sync_due

    def sync(self) -> None:
        self._journal.sync()

    def compact(self) -> None:
        """Move the results from the journal to a part, and the rest of the journal to a new one."""
        if not self._finished:
            return
        records = [{"request_id": request_id, **result} for request_id, result in self._finished.items()]
        part = write_part(self._parts_folder, f"{self._journal.path.stem}.parquet", records, self._storage)
        self._journal.append({"kind": "commit", **part.to_record()})
        self._journal.sync()
        self.parts.append(part)
        self._finished = {}
        self._journal.close()
        self._start_journal()

    def close(self) -> None:
        self._journal.close()

    def remove_leftovers(self) -> None:
        """Drop parts that were written but never committed, and half-written ones."""
        committed = {part.name for part in self.parts}
        for path in self._parts_folder.iterdir():
            if path.name not in committed:
                self._storage.remove(path)

    def results(self) -> Iterator[pa.Table]:
        """All results, one table a part, verified, the latest first. The journal has been compacted."""
        assert not self._finished, "compact() comes first"
        yield SCHEMA.empty_table()
        for part in reversed(self.parts):
            yield read_part(self._parts_folder, part)

    def _recover(self) -> None:
        for path in self._journal_paths():
            contents = read_journal(path)
            self._keep_torn_tail(path, contents)
            for record in contents.records:
                self._replay(record)

    def _replay(self, record: dict[str, Any]) -> None:
        kind = record.pop("kind")
        if kind == "start":
            self.parts = [Part(**part) for part in record["parts"]]
        elif kind == "commit":
            self.parts.append(Part(**record))
            self._finished = {}
        elif kind == "progress":
            tokens = self.saved.get(record["id"], [])
            self.saved[record["id"]] = tokens[: record["at"]] + record["ids"]
        elif kind == "finished":
            request_id = record.pop("id")
            self._finished[request_id] = record
            self.saved.pop(request_id, None)

    def _start_journal(self) -> None:
        """Begin a new journal with all that is known, make it durable, and drop the older ones."""
        old = self._journal_paths()
        number = int(old[-1].stem) + 1 if old else 1
        self._journal = Journal(self._journals / f"{number:06}.journal", self._storage)
        self._journal.append({"kind": "start", "parts": [part.to_record() for part in self.parts]})
        for request_id, token_ids in self.saved.items():
            self._journal.append({"kind": "progress", "id": request_id, "at": 0, "ids": token_ids})
        for request_id, result in self._finished.items():
            self._journal.append({"kind": "finished", "id": request_id, **result})
        self._journal.sync()
        try:
            self._storage.sync_path(self._journals)
            for path in old:
                self._storage.remove(path)
        except OSError as error:
            raise StorageError(f"{self._journals}: {error.strerror or error}") from error

    def _journal_paths(self) -> list[Path]:
        return sorted(self._journals.glob("*.journal"))

    def _keep_torn_tail(self, path: Path, contents: JournalContents) -> None:
        if contents.torn:
            path.with_suffix(".torn").write_bytes(contents.torn)


def open_state(folder: Path, storage: Storage) -> JobState:
    """Recover what earlier attempts left in folder and start a new journal.

    Raises DataError if the state is damaged, OutputError if the folder cannot be made, StorageError.
    """
    try:
        for name in ("journal", "parts"):
            (folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise OutputError(f"{folder}: cannot create: {error.strerror}") from error
    state = JobState(folder, storage)
    state._recover()
    state._start_journal()
    return state
