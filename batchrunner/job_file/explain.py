"""Say what is wrong with a job file: one line for each mistake, with field, value and remedy."""

import datetime
import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from batchrunner.spec.engine import DiskTier, EngineConfig, FeedbackLevels, SmallModel, Tiers
from batchrunner.spec.job import JobFile, JobSpec, Message
from batchrunner.spec.sampling import SamplingSpec
from batchrunner.spec.types import ColumnRef

_MAX_SHOWN = 100
_SECTIONS: dict[str, type[BaseModel]] = {
    "engine": EngineConfig,
    "tiers": Tiers,
    "disk": DiskTier,
    "mlfq": FeedbackLevels,
    "lengths": SmallModel,
    "sampling": SamplingSpec,
}
_ITEMS: dict[str, type[BaseModel]] = {"jobs": JobSpec, "messages": Message}
# pydantic's kinds of type errors → what the value should have been, in the words of a job file.
_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "tuple_type": "a list",
    "model_type": "a mapping",
}

Place = tuple[int | str, ...]  # ("jobs", 0, "name")


@dataclass(frozen=True, slots=True)
class _Mistake:
    """One error of pydantic's, put where the document has it.

    expected: what the value should have been, "" if it is of the right type but wrong. model: the one whose key the
    last step of the path is.
    """

    kind: str
    message: str
    expected: str
    path: Place
    value: Any
    model: type[BaseModel] | None


def explain(error: ValidationError, document: Any, label: str) -> str:
    """One line for each mistake. Values are shown as the file has them, before ${env:…} is filled in."""
    mistakes = [_mistake(item, document) for item in error.errors(include_url=False, include_input=False)]
    # A union reports each of its members: those of another type than the value has are left out.
    settled = {mistake.path for mistake in mistakes if not mistake.expected}
    settled |= {mistake.path[:end] for mistake in mistakes for end in range(len(mistake.path))}
    near = {mistake.path: _near_key(mistake) for mistake in mistakes if mistake.kind == "extra_forbidden"}
    misspelt = {(*path[:-1], key) for path, key in near.items() if key}
    lines: dict[str, None] = {}
    for mistake in mistakes:
        if mistake.kind == "extra_forbidden":
            known = ", ".join(mistake.model.model_fields) if mistake.model else ""
            key = near[mistake.path]
            hint = f"did you mean {key!r}?" if key else f"known keys: {known}"
            lines[f"{label}: {where(mistake.path)}: unknown key; {hint}"] = None
        elif mistake.kind == "missing":
            if mistake.path not in misspelt:
                lines[f"{label}: {where(mistake.path)}: this key is required"] = None
        elif not mistake.expected:
            lines[line(label, mistake.path, mistake.value, mistake.message)] = None
        elif mistake.path not in settled:
            expected = [other.expected for other in mistakes if other.path == mistake.path]
            lines[line(label, mistake.path, mistake.value, _should_be(expected, mistake.value))] = None
    return "\n".join(lines)


def line(label: str, path: Place, value: Any, message: str) -> str:
    """The line that tells one mistake. Lists and mappings are not shown."""
    value_text = "" if isinstance(value, dict | list) else f" {_shown(value)}"
    return f"{label}: {where(path) or 'job file'}:{value_text} {message}"


def where(path: Place) -> str:
    """("jobs", 0, "name") → jobs[0].name"""
    steps = (
        f"[{step}]" if isinstance(step, int) else f".{step if step.isprintable() else repr(step)}" for step in path
    )
    return "".join(steps).removeprefix(".")


def _mistake(item: Any, document: Any) -> _Mistake:
    """Follow a pydantic location through the document, leaving out the names of union members."""
    path: list[int | str] = []
    node = document
    owner: type[BaseModel] | None = None
    model: type[BaseModel] | None = JobFile
    item_model: type[BaseModel] | None = None
    for step in item["loc"]:
        if isinstance(step, str) and model is None:  # a member of a union; those with keys are all ColumnRef
            model = ColumnRef if step == "ColumnRef" else None
            continue
        path.append(step)
        if isinstance(step, int):
            node = node[step] if isinstance(node, list) and step < len(node) else None
            model = item_model
        else:
            node = node.get(step) if isinstance(node, dict) else None
            owner, model, item_model = model, _SECTIONS.get(step), _ITEMS.get(step)
    message = item["msg"].removeprefix("Value error, ")
    return _Mistake(
        kind=item["type"],
        message=message[:1].lower() + message[1:],
        expected=_expected(item),
        path=tuple(path),
        value=node,
        model=owner,
    )


def _expected(item: Any) -> str:
    if item["type"] == "literal_error":
        return str(item["ctx"]["expected"])
    if item["type"] == "model_type" and item["ctx"]["class_name"] == "ColumnRef":
        return "{column: NAME}"
    return _EXPECTED.get(item["type"], "")


def _should_be(expected: Sequence[str], value: Any) -> str:
    *others, last = dict.fromkeys(expected)
    text = f"input should be {', '.join(others)} or {last}" if others else f"input should be {last}"
    is_plain = value is not None and not isinstance(value, str | dict | list)
    return f"{text}; put it in quotes" if is_plain and not others and last == "text" else text


def _near_key(mistake: _Mistake) -> str | None:
    known = list(mistake.model.model_fields) if mistake.model else []
    near = difflib.get_close_matches(str(mistake.path[-1]), known, n=1, cutoff=0.75)
    return near[0] if near else None


def _shown(value: Any) -> str:
    """The value as a job file would have it, short enough for a line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    try:
        text = str(value) if isinstance(value, datetime.date) else repr(value)
    except ValueError:  # Python prints no number of over 4,300 digits
        return "this number"
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
