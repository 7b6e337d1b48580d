"""Offline batch inference for language models: a table in, a table out, no row lost."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batchrunner.api import annotate, submit
    from batchrunner.engine.request import Completion
    from batchrunner.generate.engine import Engine
    from batchrunner.output.summary import Summary
    from batchrunner.spec.sampling import SamplingParams

__version__ = "0.1.0"
__all__ = ["Completion", "Engine", "SamplingParams", "Summary", "annotate", "submit"]

_HOME = {
    "annotate": "api",
    "submit": "api",
    "Completion": "engine.request",
    "Engine": "generate.engine",
    "SamplingParams": "spec.sampling",
    "Summary": "output.summary",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: torch takes seconds, `batchrun status` must not wait for it."""
    if name not in _HOME:
        raise AttributeError(f"module 'batchrunner' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"batchrunner.{_HOME[name]}"), name)
