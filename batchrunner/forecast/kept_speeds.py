"""How fast this machine computed a model, kept from run to run: the next forecast begins with it."""

import hashlib
import json
import math
import platform
from contextlib import suppress
from pathlib import Path
from typing import Self

from batchrunner.cache_folder import cache_folder
from batchrunner.engine.model.speeds import Speeds
from batchrunner.spec.engine import EngineConfig


class KeptSpeeds:
    """speeds: those of an earlier run; None: there are none.

    One file in the cache folder for a model and a machine. It is a help, not a result: one that cannot be read or
    written is left.
    """

    def __init__(self, name: str) -> None:
        self._path: Path | None = None
        with suppress(RuntimeError):  # this user has no home folder
            self._path = cache_folder() / "speeds" / f"{name}.json"
        self.speeds = self._load()

    @classmethod
    def of(cls, model: str, config: EngineConfig, device_kind: str) -> Self:
        """model: what tells it from others: its fingerprint, or its sizes.

        A machine is known by its GPU, or by its name and number of threads.
        """
        import torch  # takes seconds, and its callers have it

        is_gpu = device_kind == "cuda" and torch.cuda.is_available()
        chip = torch.cuda.get_device_name() if is_gpu else f"{platform.node()}, {torch.get_num_threads()} threads"
        parts = (model, config.dtype_on(device_kind), config.quantization, device_kind, chip)
        return cls(hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32])

    def save(self, speeds: Speeds) -> None:
        """Write the file as a whole."""
        self.speeds = speeds
        if self._path is None:
            return
        values = [speeds.flops_per_second, speeds.bytes_per_second, speeds.overhead_seconds]
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            scratch = self._path.with_suffix(".tmp")
            scratch.write_text(json.dumps(values))
            scratch.replace(self._path)

    def _load(self) -> Speeds | None:
        try:
            found = json.loads(self._path.read_text()) if self._path else None
        except (OSError, ValueError):
            return None
        if not isinstance(found, list) or len(found) != 3 or not all(map(_is_number, found)):
            return None
        flops_per_second, bytes_per_second, overhead_seconds = map(float, found)
        if flops_per_second <= 0 or bytes_per_second <= 0:
            return None
        return Speeds(flops_per_second, bytes_per_second, overhead_seconds)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
