"""The options of Engine(…), which are those of `engine:` in a job file."""

from typing import Any

from pydantic import ValidationError

from batchrunner.errors import UsageError
from batchrunner.spec.engine import EngineConfig


def engine_config(options: dict[str, Any]) -> EngineConfig:
    """Raises UsageError naming what is wrong."""
    try:
        return EngineConfig(**options)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, item['loc'])) or 'engine'}: {item['msg']}" for item in error.errors()]
        raise UsageError("Engine: " + "; ".join(lines)) from error
