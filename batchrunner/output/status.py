"""How far a job is, read from its output folder in milliseconds."""

import json
from pathlib import Path
from typing import Any

from batchrunner.errors import UsageError
from batchrunner.output.lock import is_locked, lock_holder


def job_status(output: Path, name: str | None = None) -> dict[str, Any]:
    """state is one of: not started, running, interrupted, done. Row counts are those of the last note, at most a few
    seconds old. Raises UsageError if output is no output folder and no name says which job is meant."""
    state_folder = output / ".batchrun"
    found: dict[str, Any] = {"name": name or output.name, "output": str(output)}
    if not state_folder.exists():
        if name is None:
            raise UsageError(f"{output}: not an output folder of batchrun (it has no .batchrun folder)")
        return {**found, "state": "not started"}
    progress = _read(state_folder / "progress.json")
    found |= {key: progress[key] for key in ("name", "num_rows", "num_done", "num_failed") if key in progress}
    if is_locked(state_folder):
        return {**found, "state": "running", "holder": lock_holder(state_folder)}
    if (output / "_SUCCESS").exists():
        return {**found, "state": "done"}
    return {**found, "state": "interrupted"}


def _read(path: Path) -> dict[str, Any]:
    try:
        values: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return values
