"""Offline batch inference for language models: a table in, a table out, no row lost."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batchrunner.engine.engine import Engine
    from batchrunner.spec import SamplingParams

__version__ = "0.1.0"
__all__ = ["Engine", "SamplingParams"]

_HOME = {"Engine": "batchrunner.engine.engine", "SamplingParams": "batchrunner.spec"}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: torch takes seconds, `batchrun status` must not wait for it."""
    if name not in _HOME:
        raise AttributeError(f"module 'batchrunner' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOME[name]), name)
