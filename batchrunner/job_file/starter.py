"""`batchrun init`: a job file that runs as it is, to be changed."""

import shutil
from importlib.resources import as_file, files
from pathlib import Path

from batchrunner.errors import OutputError, UsageError


def write_starter(path: Path) -> list[Path]:
    """Write the starter job file to path and its input beside it. Raises UsageError if one of them exists."""
    shipped = files("batchrunner") / "job_files"
    targets = {path: shipped / "starter.yaml", path.parent / "reviews.jsonl": shipped / "quickstart" / "reviews.jsonl"}
    for target in targets:
        if target.exists():
            raise UsageError(f"{target}: exists already; choose another place: batchrun init FOLDER/jobs.yaml")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for target, source in targets.items():
            with as_file(source) as file:
                shutil.copyfile(file, target)
    except OSError as error:
        raise OutputError(f"{path}: cannot write: {error.strerror}") from error
    return list(targets)
