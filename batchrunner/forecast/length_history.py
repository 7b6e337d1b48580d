"""Lengths of answers, kept from run to run: tomorrow's job of the same template begins with what today's has seen."""

import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from batchrunner.cache_folder import cache_folder
from batchrunner.engine.scheduling.predictors.history import History
from batchrunner.spec.job import JobSpec
from batchrunner.spec.types import ColumnRef


def group_of(job: JobSpec) -> str:
    """The same for jobs that ask the same of other rows and let answers be as long. Prompts that are in a column tell
    nothing: the name does."""
    template = job.model_dump_json(include={"prompt": True, "messages": True, "sampling": {"max_tokens", "stop"}})
    if isinstance(job.prompt, ColumnRef) or isinstance(job.messages, ColumnRef):
        template += job.name
    return hashlib.sha256(template.encode()).hexdigest()[:16]


class LengthHistory:
    """groups: those of the run's jobs. known: what earlier runs saw of them; the engine learns on in it.

    One file a group in the cache folder. It is a help, not a result: one that cannot be read or written is left.
    """

    def __init__(self, groups: Iterable[str]) -> None:
        self._paths: dict[str, Path] = {}
        with suppress(RuntimeError):  # this user has no home folder
            self._paths = {group: cache_folder() / "lengths" / f"{group}.json" for group in groups}
        lengths: dict[str, list[int]] = {}
        for path in self._paths.values():
            try:
                found = json.loads(path.read_text())
            except (OSError, ValueError):
                continue
            if isinstance(found, dict):
                lengths |= {name: values for name, values in found.items() if _is_lengths(values)}
        self.known = History(lengths=lengths)

    def save(self) -> None:
        """Write what is known now, each file as a whole."""
        for group, path in self._paths.items():
            lengths = {name: known for name, known in self.known.lengths().items() if name.endswith(f":{group}")}
            if not lengths:
                continue
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                scratch = path.with_suffix(".tmp")
                scratch.write_text(json.dumps(lengths))
                scratch.replace(path)
            except OSError:
                return


def _is_lengths(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(value, int) and value >= 0 for value in values)
