"""Values in place of those in a job file: `-o engine.block_size=32`."""

import re
from typing import Any

from batchrunner.errors import JobFileError, UsageError
from batchrunner.job_file.strict_yaml import read_yaml


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


def override(document: dict[str, Any], dotted: str, value: Any, label: str) -> None:
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
