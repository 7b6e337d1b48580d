"""${env:NAME} in a job file."""

import os
import re
from typing import Any

from batchrunner.errors import JobFileError

_ENV = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")


def expand_environment(node: Any, label: str) -> Any:
    """Replace ${env:NAME} in every string. The result is validated and used, never written anywhere."""
    if isinstance(node, dict):
        return {key: expand_environment(value, label) for key, value in node.items()}
    if isinstance(node, list):
        return [expand_environment(value, label) for value in node]
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
