"""The files of a spool.

000000.arrow …   the rows in input order, in segments; what has such a name is whole
spool.json       what they were made from, their sizes and checksums; and the columns, when all segments are there
"""

import base64
import shutil
from dataclasses import dataclass
from pathlib import Path

import google_crc32c
import pyarrow as pa
from pydantic import TypeAdapter, ValidationError

from batchrunner.data.input.input_columns import InputColumns
from batchrunner.data.spool.inputs import SpoolInputs

_CHUNK_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Segment:
    name: str
    num_rows: int
    num_bytes: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class _SavedColumns:
    """schema: serialised by Arrow, in base64."""

    digest: str
    schema: str
    json_names: list[str]


@dataclass(frozen=True, slots=True)
class _Contents:
    """What spool.json holds. rows: the digest of what the segments were made from."""

    rows: str
    segments: list[Segment]
    columns: _SavedColumns | None


_CONTENTS = TypeAdapter(_Contents)


class SpoolFolder:
    """The segments in a folder that were made from these inputs and are whole; everything else is as good as gone.

    Raises OSError where the folder cannot be read or written.
    """

    def __init__(self, path: Path, inputs: SpoolInputs) -> None:
        self.segments: list[Segment] = []
        self.columns: InputColumns | None = None  # known once all segments are there
        self._path = path
        self._inputs = inputs
        path.mkdir(parents=True, exist_ok=True)
        found = _read(path / "spool.json")
        if found is not None and found.rows == inputs.rows_digest:
            self._take(found)
        else:
            shutil.rmtree(path)
            path.mkdir()

    @property
    def num_rows(self) -> int:
        return sum(segment.num_rows for segment in self.segments)

    @property
    def paths(self) -> list[Path]:
        return [self._path / segment.name for segment in self.segments]

    @property
    def temporary(self) -> Path:
        """Where the next segment is written to, before it is whole."""
        return self._path / "segment.tmp"

    def add_segment(self, num_rows: int) -> None:
        """What was written to the temporary file is the next segment."""
        name = f"{len(self.segments):06}.arrow"
        segment = Segment(name, num_rows, self.temporary.stat().st_size, _checksum(self.temporary))
        self.temporary.replace(self._path / name)
        self.segments.append(segment)
        self._write()

    def complete(self, columns: InputColumns) -> None:
        """All segments are there."""
        self.columns = columns
        self._write()

    def _take(self, found: _Contents) -> None:
        for segment in found.segments:
            if not _is_whole(self._path / segment.name, segment):
                return
            self.segments.append(segment)
        saved = found.columns
        if saved is not None and saved.digest == self._inputs.columns_digest:
            schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(saved.schema)))
            names = frozenset(saved.json_names)
            self.columns = InputColumns(self._inputs.files, self._inputs.stamps, schema, names)

    def _write(self) -> None:
        saved = None
        if self.columns is not None:
            schema = base64.b64encode(self.columns.schema.serialize()).decode()
            saved = _SavedColumns(self._inputs.columns_digest, schema, sorted(self.columns.json_names))
        temporary = self._path / "spool.json.tmp"
        temporary.write_bytes(_CONTENTS.dump_json(_Contents(self._inputs.rows_digest, self.segments, saved)))
        temporary.replace(self._path / "spool.json")


def _read(path: Path) -> _Contents | None:
    """None where there is no such file, or one that cannot be read."""
    try:
        return _CONTENTS.validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def _is_whole(path: Path, segment: Segment) -> bool:
    return path.is_file() and path.stat().st_size == segment.num_bytes and _checksum(path) == segment.crc32c


def _checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            checksum = google_crc32c.extend(checksum, chunk)
    return checksum
