"""Read a job file: YAML in, JobFile out, and for every mistake the field, the value and a remedy."""

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from batchrunner.errors import JobFileError
from batchrunner.job_file.environment import expand_environment
from batchrunner.job_file.explain import explain
from batchrunner.job_file.overrides import override
from batchrunner.job_file.paths import JobPaths
from batchrunner.job_file.strict_yaml import read_yaml
from batchrunner.spec.job import JobFile

MAX_FILE_BYTES = 1_000_000
MAX_DEPTH = 50


def load_job_file(path: str | Path, overrides: dict[str, Any] | None = None) -> JobFile:
    """Read and validate the job file at path.

    overrides maps dotted paths ("engine.block_size", "jobs.0.output", "jobs.NAME.output") to values. Relative model,
    input and output paths are taken from the job file's own folder, so that a cron job finds them from anywhere.

    Raises JobFileError.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        text = content.decode()
    except OSError as error:
        raise JobFileError(f"{path}: cannot read the job file: {error.strerror}") from error
    except UnicodeDecodeError as error:
        if len(content) <= MAX_FILE_BYTES:
            raise JobFileError(f"{path}: not UTF-8 text") from error
    if len(content) > MAX_FILE_BYTES:
        raise JobFileError(f"{path}: larger than {MAX_FILE_BYTES:,} bytes; is this really a job file?")
    try:
        document = read_yaml(text)
    except JobFileError as error:
        raise JobFileError(f"{path}: {error}") from error
    return build_job_file(document, overrides or {}, base=path.resolve().parent, label=str(path))


def build_job_file(document: Any, overrides: dict[str, Any], base: Path, label: str) -> JobFile:
    """Validate a job file that was already parsed. base is the folder relative paths are taken from."""
    if not isinstance(document, dict):
        raise JobFileError(f"{label}: a job file is a mapping with the keys model, engine and jobs")
    document = _unshared(document, label)
    for dotted, value in overrides.items():
        override(document, dotted, _unshared(value, label), f"{label}: override {dotted}")
    filled = expand_environment(document, label)
    try:
        job_file = JobFile.model_validate(filled)
    except ValidationError as error:
        mistakes = explain(error, document, label)
    else:
        return JobPaths(document, base, label).resolve(job_file)
    raise JobFileError(mistakes)  # outside the except block: pydantic's error holds what ${env:…} was filled with


def _unshared(node: Any, label: str, depth: int = 0) -> Any:
    """A copy in which nothing is shared: an override then changes one place, and the caller's document stays."""
    if depth > MAX_DEPTH:
        raise JobFileError(f"{label}: values are nested over {MAX_DEPTH} deep")
    if isinstance(node, dict):
        for key in node:
            if not isinstance(key, str):
                raise JobFileError(f"{label}: the key {key!r} is no text; put it in quotes")
        return {key: _unshared(value, label, depth + 1) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [_unshared(value, label, depth + 1) for value in node]
    return node
