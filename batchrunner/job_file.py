"""Read a job file: YAML in, JobFile out, and for every mistake the field, the value and a remedy."""

import difflib
import os
import re
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from batchrunner import spec
from batchrunner.errors import JobFileError

MAX_FILE_BYTES = 1_000_000
MAX_ALIASES = 100
_ENV = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
_CHILDREN: dict[str, type[BaseModel]] = {
    "engine": spec.EngineConfig,
    "jobs": spec.JobSpec,
    "sampling": spec.SamplingSpec,
    "messages": spec.Message,
}
_REMOTE = re.compile(r"^[a-z][a-z0-9+.-]*://")


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader that refuses a key written twice and files that use aliases to grow without bound."""

    num_aliases = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            self.num_aliases += 1
            if self.num_aliases > MAX_ALIASES:
                raise JobFileError(f"more than {MAX_ALIASES} YAML aliases; write the values out")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = key_node.value
            if key in seen and key != "<<":
                raise JobFileError(f"line {key_node.start_mark.line + 1}: the key {key!r} is there twice")
            seen.add(key)
        return super().construct_mapping(node, deep)


def load_job_file(path: str | Path, overrides: dict[str, Any] | None = None) -> spec.JobFile:
    """Read and validate the job file at path.

    overrides maps dotted paths ("engine.block_size", "jobs.0.output", "jobs.NAME.output") to values. Relative model,
    input and output paths are taken from the job file's own folder, so that a cron job finds them from anywhere.

    Raises JobFileError.
    """
    path = Path(path)
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise JobFileError(f"{path}: larger than {MAX_FILE_BYTES:,} bytes; is this really a job file?")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise JobFileError(f"{path}: cannot read the job file: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise JobFileError(f"{path}: not UTF-8 text") from error
    try:
        document = yaml.load(text, _StrictLoader)  # noqa: S506  _StrictLoader is a SafeLoader
    except yaml.YAMLError as error:
        raise JobFileError(f"{path}: not valid YAML: {error}") from error
    except JobFileError as error:
        raise JobFileError(f"{path}: {error}") from error
    return build_job_file(document, overrides or {}, base=path.resolve().parent, label=str(path))


def build_job_file(document: Any, overrides: dict[str, Any], base: Path, label: str) -> spec.JobFile:
    """Validate a job file that was already parsed. base is the folder relative paths are taken from."""
    if not isinstance(document, dict):
        raise JobFileError(f"{label}: a job file is a mapping with the keys model, engine and jobs")
    for dotted, value in overrides.items():
        _override(document, dotted, value, label)
    try:
        job_file = spec.JobFile.model_validate(_expand_environment(document, label))
    except ValidationError as error:
        raise JobFileError(_explain(error, document, label)) from error
    return _absolute_paths(job_file, base)


def parse_override(text: str) -> tuple[str, Any]:
    """Split "engine.block_size=32" into its path and its value, read as YAML."""
    dotted, separator, value = text.partition("=")
    if not separator or not dotted:
        raise JobFileError(f"-o {text}: write it as key.path=value")
    try:
        return dotted, yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise JobFileError(f"-o {text}: the value is not valid YAML") from error


def _override(document: dict[str, Any], dotted: str, value: Any, label: str) -> None:
    *parents, last = dotted.split(".")
    node: Any = document
    for step in parents:
        if isinstance(node, list):
            node = _list_item(node, step, dotted, label)
        elif isinstance(node, dict):
            if node.get(step) is None:
                node[step] = {}
            node = node[step]
        else:
            raise JobFileError(f"{label}: override {dotted}: {step!r} is below a plain value")
    if isinstance(node, list):
        node[node.index(_list_item(node, last, dotted, label))] = value
    elif isinstance(node, dict):
        node[last] = value
    else:
        raise JobFileError(f"{label}: override {dotted}: {last!r} is below a plain value")


def _list_item(items: list[Any], step: str, dotted: str, label: str) -> Any:
    if step.isdigit() and int(step) < len(items):
        return items[int(step)]
    for item in items:
        if isinstance(item, dict) and item.get("name") == step:
            return item
    raise JobFileError(f"{label}: override {dotted}: there is no item {step!r}")


def _expand_environment(node: Any, label: str) -> Any:
    """Replace ${env:NAME} in every string. The result is validated and used, never written anywhere."""
    if isinstance(node, dict):
        return {key: _expand_environment(value, label) for key, value in node.items()}
    if isinstance(node, list):
        return [_expand_environment(value, label) for value in node]
    if isinstance(node, str):
        return _ENV.sub(lambda match: _environment(match[1], label), node)
    return node


def _environment(name: str, label: str) -> str:
    if name not in os.environ:
        raise JobFileError(f"{label}: ${{env:{name}}}: the environment variable {name} is not set")
    return os.environ[name]


def _absolute_paths(job_file: spec.JobFile, base: Path) -> spec.JobFile:
    def absolute(value: str) -> str:
        return value if _REMOTE.match(value) else os.path.normpath(base / Path(value).expanduser())

    jobs = tuple(
        job.model_copy(update={"input": tuple(map(absolute, job.inputs)), "output": absolute(job.output)})
        for job in job_file.jobs
    )
    model = job_file.model
    if model.startswith((".", "~", "/")) or (base / model).exists():
        model = absolute(model)
    return job_file.model_copy(update={"jobs": jobs, "model": model})


def _explain(error: ValidationError, document: Any, label: str) -> str:
    """One line for each mistake. Values are shown as the file has them, before ${env:…} is filled in."""
    lines: dict[str, None] = {}
    for item in error.errors():
        # A union reports each of its members; the path in the document ends where the document ends.
        path, node, model = _walk(document, item["loc"], names_a_key=item["type"] in ("missing", "extra_forbidden"))
        where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
        if item["type"] == "extra_forbidden":
            known = list(model.model_fields) if model else []
            near = difflib.get_close_matches(str(path[-1]), known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
            lines[f"{label}: {where}: unknown key; {hint}"] = None
        elif item["type"] == "missing":
            lines[f"{label}: {where}: this key is required"] = None
        else:
            message = item["msg"].removeprefix("Value error, ")
            message = message[:1].lower() + message[1:]
            shown = "" if isinstance(node, dict | list) else f" {node!r}"
            lines[f"{label}: {where or 'job file'}:{shown} {message}"] = None
    return "\n".join(lines)


def _walk(
    document: Any, loc: tuple[int | str, ...], *, names_a_key: bool
) -> tuple[list[int | str], Any, type[BaseModel] | None]:
    """Follow a pydantic location through the document as far as it goes, leaving out the names of union members.

    names_a_key: the last step is a key (unknown or missing), whether the document has it or not. Returns the path, the
    value at its end, and the model whose key the last step is.
    """
    path: list[int | str] = []
    node = document
    model: type[BaseModel] | None = spec.JobFile
    parent: type[BaseModel] | None = None
    for position, step in enumerate(loc):
        is_key = names_a_key and position == len(loc) - 1
        if isinstance(node, list) and isinstance(step, int) and step < len(node):
            node = node[step]
            path.append(step)
        elif isinstance(node, dict) and (step in node or is_key):
            path.append(step)
            node, parent, model = node.get(step), model, _model_of(model, str(step))
    return path, node, parent


def _model_of(model: type[BaseModel] | None, field: str) -> type[BaseModel] | None:
    return _CHILDREN.get(field, model)
