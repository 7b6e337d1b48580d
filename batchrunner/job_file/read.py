"""Read a job file: YAML in, JobFile out, and for every mistake the field, the value and a remedy."""

import os
import re
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from batchrunner.errors import JobFileError, UsageError
from batchrunner.job_file.explain import explain
from batchrunner.job_file.paths import JobPaths
from batchrunner.job_file.strict_yaml import read_yaml
from batchrunner.spec import job as spec

MAX_FILE_BYTES = 1_000_000
MAX_DEPTH = 50
_ENV = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")


def load_job_file(path: str | Path, overrides: dict[str, Any] | None = None) -> spec.JobFile:
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


def build_job_file(document: Any, overrides: dict[str, Any], base: Path, label: str) -> spec.JobFile:
    """Validate a job file that was already parsed. base is the folder relative paths are taken from."""
    if not isinstance(document, dict):
        raise JobFileError(f"{label}: a job file is a mapping with the keys model, engine and jobs")
    document = _unshared(document, label)
    for dotted, value in overrides.items():
        _override(document, dotted, _unshared(value, label), f"{label}: override {dotted}")
    filled = _expand_environment(document, label)
    try:
        job_file = spec.JobFile.model_validate(filled)
    except ValidationError as error:
        mistakes = explain(error, document, label)
    else:
        return JobPaths(document, base, label).resolve(job_file)
    raise JobFileError(mistakes)  # outside the except block: pydantic's error holds what ${env:…} was filled with


def parse_override(text: str) -> tuple[str, Any]:
    """Split "engine.block_size=32" into its path and its value, read as YAML.

    Raises UsageError if it is no such pair, JobFileError if the value is not valid YAML.
    """
    dotted, separator, value = text.partition("=")
    if not separator or not dotted:
        raise UsageError(f"-o {text}: write it as KEY=VALUE, for example -o engine.block_size=32")
    try:
        return dotted, read_yaml(value)
    except JobFileError as error:
        hint = f"put the value in quotes, as in -o '{dotted}=\"…\"'"
        raise JobFileError(f"-o {text}: the value is not valid YAML; {hint}") from error


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


def _override(document: dict[str, Any], dotted: str, value: Any, label: str) -> None:
    node: Any = document
    steps = dotted.split(".")
    while True:
        key: Any = steps[0]
        num_steps = 1
        if isinstance(node, list):
            name = _item_name(node, steps)
            num_steps += name.count(".")
            key = _item_index(node, name, label)
        elif not isinstance(node, dict):
            raise JobFileError(f"{label}: {key!r} is below a plain value")
        steps = steps[num_steps:]
        if not steps:
            node[key] = value
            return
        if isinstance(node, dict) and node.get(key) is None:
            node[key] = {}
        node = node[key]


def _item_name(items: list[Any], steps: list[str]) -> str:
    """The longest beginning of the steps that is an item's name, for names may have dots; else the first step."""
    names = [item.get("name") for item in items if isinstance(item, dict)]
    candidates = (".".join(steps[:end]) for end in range(len(steps), 1, -1))
    return next((name for name in candidates if name in names), steps[0])


def _item_index(items: list[Any], step: str, label: str) -> int:
    if re.fullmatch(r"[0-9]{1,9}", step) and int(step) < len(items):
        return int(step)
    for index, item in enumerate(items):
        if isinstance(item, dict) and item.get("name") == step:
            return index
    raise JobFileError(f"{label}: there is no item {step!r}")


def _expand_environment(node: Any, label: str) -> Any:
    """Replace ${env:NAME} in every string. The result is validated and used, never written anywhere."""
    if isinstance(node, dict):
        return {key: _expand_environment(value, label) for key, value in node.items()}
    if isinstance(node, list):
        return [_expand_environment(value, label) for value in node]
    if isinstance(node, str):
        filled = _ENV.sub(lambda match: _environment(match[1], label), node)
        if not filled.isascii() and any("\ud800" <= char <= "\udfff" for char in filled):
            raise JobFileError(
                f"{label}: {node!r:.100} is no text (half a surrogate pair, or bytes that are not UTF-8)"
            )
        return filled
    return node


def _environment(name: str, label: str) -> str:
    if name not in os.environ:
        raise JobFileError(f"{label}: ${{env:{name}}}: the environment variable {name} is not set")
    return os.environ[name]
