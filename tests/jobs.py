"""Small jobs: their files, right and wrong, and what they wrote when they were run in this process."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchrunner.errors import JobFileError
from batchrunner.job_file.read import build_job_file, load_job_file
from batchrunner.output.summary import Summary
from batchrunner.run.progress import Snapshot
from batchrunner.run.submit import run_job_file
from batchrunner.spec.job import JobFile

VALID = """\
model: m
engine: {kv_memory: 8GiB, policy: fcfs}
jobs:
  - name: one
    input: [in/*.jsonl, more.parquet]
    output: out/one
    messages:
      - {role: system, content: Be brief.}
      - {role: user, content: "{{ text }}"}
    sampling: {max_tokens: 5, seed: {column: s}}
"""


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


def document(**changes: Any) -> dict[str, Any]:
    """A valid job file with one job; changes go into the job."""
    job = {"name": "one", "input": "in.jsonl", "output": "out", "prompt": "{{ text }}", **changes}
    return {"model": "m", "jobs": [job]}


def two_jobs() -> dict[str, Any]:
    content = document()
    content["jobs"].append(content["jobs"][0] | {"name": "two", "output": "out2"})
    return content


def build(content: Any, overrides: dict[str, Any] | None = None, base: Path = Path("/base")) -> JobFile:
    return build_job_file(content, overrides or {}, base, "jobs.yaml")


def refusal(content: Any, overrides: dict[str, Any] | None = None) -> str:
    """The first lines of the error that a wrong document ends with."""
    with pytest.raises(JobFileError) as caught:
        build(content, overrides)
    return str(caught.value)


def load(folder: Path, text: str | bytes, overrides: dict[str, Any] | None = None) -> JobFile:
    path = folder / "jobs.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_job_file(path, overrides)


def load_refusal(folder: Path, text: str | bytes) -> str:
    with pytest.raises(JobFileError) as caught:
        load(folder, text)
    return str(caught.value)


def run(loaded: JobFile) -> Summary:
    return run_job_file(loaded, SilentProgress())


def read_output(folder: Path) -> pa.Table:
    return pa.concat_tables([pq.read_table(path) for path in sorted(folder.glob("data-*.parquet"))])


def answers(folder: Path, column: str = "response") -> list[str | None]:
    values: list[str | None] = read_output(folder)[column].to_pylist()
    return values


BATCHRUN = [sys.executable, "-c", "from batchrunner.cli.main import main; main()"]


def batchrun(*args: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command line, in its own process."""
    return subprocess.run([*BATCHRUN, *map(str, args)], cwd=cwd, capture_output=True, text=True, timeout=120)
