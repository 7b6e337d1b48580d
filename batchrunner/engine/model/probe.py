"""What the device does at best in half a second, with one large linear layer: arithmetic, and reading memory.

For the time before any step was measured. The steps of a model reach about MODEL_SHARE of it.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from batchrunner.engine.model.layers.linear import PackedLinear, PlainLinear, can_pack
from batchrunner.engine.model.speeds import Speeds

MODEL_SHARE = 0.87  # SmolLM2-135M in float32 on two cores with AVX-512: 0.87 of the arithmetic, 0.88 of the reading
_SECONDS = 0.12  # for each of the two


@dataclass(frozen=True, slots=True)
class _Sizes:
    num_rows: int
    width: int
    num_outputs: int


_SIZES = {"cpu": _Sizes(256, 2048, 16_384), "cuda": _Sizes(4096, 8192, 16_384)}  # beyond what caches hold


@torch.inference_mode()
def probe(device: torch.device, dtype: torch.dtype) -> Speeds:
    """Multiply many rows by the weight, which takes arithmetic, and one row, which takes as long as reading it.

    Takes 0.5 s, and up to 300 MB of the device's memory on a CPU, 700 MB on a GPU.
    """
    sizes = _SIZES[device.type]
    weight = torch.full((sizes.num_outputs, sizes.width), 0.5, device=device, dtype=dtype)
    layer = PackedLinear(weight, None) if can_pack(device, dtype) else PlainLinear(weight, None)
    rows = torch.ones(sizes.num_rows, sizes.width, device=device, dtype=dtype)
    one_row = rows[:1]
    return Speeds(
        flops_per_second=2 * sizes.num_rows * weight.numel() / _least_seconds(lambda: layer(rows), device),
        bytes_per_second=weight.nbytes / _least_seconds(lambda: layer(one_row), device),
    )


def _least_seconds(run: Callable[[], object], device: torch.device) -> float:
    """Of one run, after one that is not counted: whatever else the machine does only adds to it."""
    least, ends = math.inf, time.perf_counter() + _SECONDS
    run()
    while least == math.inf or time.perf_counter() < ends:
        _wait_for(device)
        started = time.perf_counter()
        run()
        _wait_for(device)
        least = min(least, time.perf_counter() - started)
    return least


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
