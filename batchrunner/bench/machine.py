"""What a benchmark ran on."""

import platform
import re
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import torch

from batchrunner.bench.results import Machine

_PACKAGES = ("batchrunner", "torch", "transformers")


def this_machine(device: torch.device) -> Machine:
    chip = torch.cuda.get_device_name(device) if device.type == "cuda" else _chip()
    return Machine(
        date=datetime.now(UTC).date().isoformat(),
        chip=chip,
        num_threads=torch.get_num_threads(),
        python=platform.python_version(),
        versions={name: version(name) for name in _PACKAGES},
    )


def _chip() -> str:
    info = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*:\s*(.*)$", info.read_text(), re.MULTILINE) if info.exists() else None
    name = found[1] if found else platform.processor() or platform.machine()
    return f"{name} ({torch.backends.cpu.get_cpu_capability()})"
