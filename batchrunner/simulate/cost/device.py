"""A machine in numbers: what it computes, reads and moves in a second."""

import difflib
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from batchrunner.engine.model.speeds import Speeds
from batchrunner.errors import JobFileError, UsageError
from batchrunner.job_file.strict_yaml import read_yaml

_DEVICES = Path(__file__).with_name("devices.yaml")


@dataclass(frozen=True, slots=True)
class Device:
    """Peaks are the data sheet's; the efficiencies are the shares of them that a step reaches."""

    name: str
    flops: float
    bytes_per_second: float
    memory_bytes: float
    link_bytes_per_second: float  # to or from host memory
    disk_bytes_per_second: float
    flops_efficiency: float
    bytes_efficiency: float
    step_overhead_seconds: float  # of every step, whatever it does
    scheduling_seconds: float  # of every scheduling pass

    @property
    def speeds(self) -> Speeds:
        """What a step reaches."""
        return Speeds(
            self.flops * self.flops_efficiency,
            self.bytes_per_second * self.bytes_efficiency,
            self.step_overhead_seconds,
        )

    @classmethod
    def load(cls, name: str) -> Self:
        """A machine of devices.yaml, or a YAML file with the keys of one.

        Raises UsageError naming file, key, value and remedy, or listing the known machines.
        """
        if name.endswith((".yaml", ".yml")):
            return cls._from_values(Path(name).stem, _read(Path(name)), name)
        known = _read(_DEVICES)
        if name not in known:
            raise UsageError(f"device {name!r}: unknown; give a .yaml file, or one of {', '.join(known)}")
        return cls._from_values(name, known[name], f"{_DEVICES.name}: {name}")

    @classmethod
    def _from_values(cls, name: str, values: Any, label: str) -> Self:
        keys = [field.name for field in fields(cls) if field.name != "name"]
        if not isinstance(values, dict):
            raise UsageError(f"{label}: should have the keys {', '.join(keys)}")
        for key in values:
            if key not in keys:
                near = difflib.get_close_matches(str(key), keys, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(keys)}"
                raise UsageError(f"{label}: {key}: unknown key; {hint}")
        return cls(name, **{key: _number(values, key, label) for key in keys})


def _read(path: Path) -> Any:
    try:
        return read_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"device {str(path)!r}: cannot be read: {error.strerror}") from error
    except (JobFileError, ValueError) as error:
        raise UsageError(f"device {str(path)!r}: {error}") from error


def _number(values: dict[str, Any], key: str, label: str) -> float:
    if key not in values:
        raise UsageError(f"{label}: {key}: this key is required")
    value = values[key]
    try:
        # YAML 1.1 takes 989e12 for text: a number with an exponent needs a point and a sign there.
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    may_be_zero = key.endswith("_seconds")
    is_share = key.endswith("_efficiency")
    if not (number > 0 or (may_be_zero and number == 0)) or number > (1 if is_share else 1e30):
        wanted = "from 0 up" if may_be_zero else "above 0 and at most 1" if is_share else "above 0"
        raise UsageError(f"{label}: {key}: {value!r} should be a number {wanted}")
    return number
