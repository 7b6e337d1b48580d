"""The output folder of one job: its names, when it is done, and how a new result takes an old one's place.

data-00000-of-00001.parquet …   _SUCCESS   summary.json   report.html   README.md   .batchrun/
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from batchrunner.checkpoint.parts import check_parquet
from batchrunner.checkpoint.storage import Storage
from batchrunner.data.outputs import OutputFile
from batchrunner.errors import OutputError, StorageError
from batchrunner.output.report import render_report
from batchrunner.output.summary import JobSummary

# A dataset card: with it, datasets.load_dataset(FOLDER) reads the data files and leaves the others alone.
_CARD = """---
configs:
- config_name: default
  data_files: data-*.parquet
---
Output of the batchrun job {name}: one row for each input row, in the input's order. summary.json has the figures.
"""


class OutputFolder:
    def __init__(self, path: Path, storage: Storage) -> None:
        self.path = path
        self.state = path / ".batchrun"
        self.scratch = self.state / "scratch"
        self.spool = self.state / "spool"  # kept until the job is complete, so that the next run goes on with it
        self.success = path / "_SUCCESS"
        self._storage = storage

    def create(self) -> None:
        """Raises OutputError if the folder cannot be made or holds somebody else's files."""
        for path in (self.path, self.state):
            if path.is_symlink():
                raise OutputError(f"{path}: is a symbolic link; outputs are written to real folders only")
        if not (self.state / "journal").exists() and self._data_files():
            raise OutputError(f"{self.path}: has data files that batchrun did not write; choose another output")
        try:
            self.scratch.mkdir(parents=True, exist_ok=True)
            self.state.chmod(0o700)
        except OSError as error:
            raise OutputError(f"{self.path}: cannot create the output: {error.strerror}") from error

    def finished_summary(self, digest: str) -> JobSummary | None:
        """The summary of the finished job with this digest, if that is what the folder holds, whole."""
        try:
            success = json.loads(self.success.read_text())
            summary = json.loads((self.path / "summary.json").read_text())
        except (OSError, ValueError):
            return None
        sizes = {path.name: path.stat().st_size for path in self._data_files()}
        if success.get("digest") != digest or success.get("files") != sizes:
            return None
        found = JobSummary.from_dict(summary)
        found.was_done = True
        return found

    def reopen(self) -> None:
        """There is work to do: what the folder holds is no longer the answer."""
        self._storage.remove(self.success)

    def write_progress(self, values: dict[str, object]) -> None:
        """Leave a note for `batchrun status`; it is not relied on, and so not made durable."""
        temporary = self.state / "progress.json.tmp"
        temporary.write_text(json.dumps(values))
        temporary.replace(self.state / "progress.json")

    def publish(self, files: Sequence[OutputFile], summary: JobSummary, digest: str) -> None:
        """Put finished files in place of what was there; _SUCCESS comes last. Raises StorageError."""
        try:
            for file in files:
                check_parquet(file.path, file.num_rows)
            self._storage.remove(self.success)
            for old in self._data_files():
                self._storage.remove(old)
            for file in files:
                self._storage.publish(file.path, self.path / file.path.name)
            self._write("summary.json", json.dumps(summary.to_dict(), indent=2) + "\n")
            self._write("report.html", render_report(summary))
            self._write("README.md", _CARD.format(name=summary.name))
            sizes = {path.name: path.stat().st_size for path in self._data_files()}
            self._write("_SUCCESS", json.dumps({"digest": digest, "files": sizes}) + "\n")
        except OSError as error:
            raise StorageError(f"{self.path}: cannot write the output: {error.strerror or error}") from error

    def _write(self, name: str, text: str) -> None:
        temporary = self.scratch / name
        temporary.write_text(text, encoding="utf-8")
        self._storage.replace(temporary, self.path / name)

    def _data_files(self) -> list[Path]:
        return sorted(self.path.glob("data-*-of-*.parquet"))


def stat_digest(paths: Sequence[Path], *texts: str) -> str:
    """A digest of texts and of the names, sizes and times of files: what decides whether a finished job is still it."""
    digest = hashlib.sha256(json.dumps(texts).encode())
    for path in paths:
        stat = path.stat()
        digest.update(f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()
