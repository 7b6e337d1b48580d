"""Small jobs, run in this process, and what they wrote."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from batchrunner.job_file import build_job_file
from batchrunner.run.progress import Snapshot
from batchrunner.run.submit import run_job_file
from batchrunner.run.summary import Summary
from batchrunner.spec import JobFile


class SilentProgress:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.snapshots: list[Snapshot] = []

    def __enter__(self) -> "SilentProgress":
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def note(self, text: str) -> None:
        self.notes.append(text)

    def reading(self, name: str, num_rows: int) -> None:
        pass

    def running(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)


def write_jsonl(path: Path, rows: Sequence[dict[str, Any] | str]) -> Path:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("".join(line + "\n" for line in lines))
    return path


def job_file(model: Path, base: Path, *jobs: dict[str, Any], **engine: Any) -> JobFile:
    """A job file whose jobs have an input, a prompt and an output unless they say otherwise."""
    documents = []
    for index, job in enumerate(jobs):
        defaults: dict[str, Any] = {"name": f"job{index}", "output": f"out{index}", "input": "in.jsonl"}
        if "messages" not in job:
            defaults["prompt"] = "Say: {{ text }}"
        documents.append(defaults | job)
    document = {"model": str(model), "engine": {"kv_tokens": 4096, **engine}, "jobs": documents}
    return build_job_file(document, {}, base=base, label="test")


def run(loaded: JobFile) -> Summary:
    return run_job_file(loaded, SilentProgress())


def read_output(folder: Path) -> pa.Table:
    return pa.concat_tables([pq.read_table(path) for path in sorted(folder.glob("data-*.parquet"))])


def answers(folder: Path, column: str = "response") -> list[str | None]:
    values: list[str | None] = read_output(folder)[column].to_pylist()
    return values
