"""How much memory the KV pool gets."""

from pathlib import Path

import psutil
import torch

from batchrunner.errors import DeviceError
from batchrunner.spec import EngineConfig

# Of what is free once the model is loaded; the rest is for activations and for whoever shares the machine.
SHARE_OF_HOST = 0.4
SHARE_OF_DEVICE = 0.85
MAX_AUTO_HOST_BYTES = 4 * 2**30


def num_kv_blocks(config: EngineConfig, bytes_per_token: int, device: torch.device) -> int:
    """The size of the pool in blocks, from kv_tokens or from bytes of memory over the KV formula's bytes per token.

    Raises DeviceError if not even one block fits, or if the memory asked for is not there.
    """
    if config.kv_tokens is not None:
        num_blocks = config.kv_tokens // config.block_size
        asked = f"engine.kv_tokens: {config.kv_tokens}"
    else:
        num_bytes = _auto_bytes(device) if config.kv_memory == "auto" else config.kv_memory
        num_blocks = num_bytes // (bytes_per_token * config.block_size)
        asked = f"engine.kv_memory: {num_bytes:,} bytes"
    missing = num_blocks * bytes_per_token * config.block_size - _free_host_bytes()
    if config.has_fixed_pool and device.type == "cpu" and missing > 0:
        raise DeviceError(f"{asked} needs {missing:,} bytes more than are free; give less, or kv_memory: auto")
    if num_blocks < 1:
        raise DeviceError(f"{asked} holds not one block of {config.block_size} tokens ({bytes_per_token:,} bytes each)")
    return num_blocks


def _auto_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free * SHARE_OF_DEVICE)
    return min(int(_free_host_bytes() * SHARE_OF_HOST), MAX_AUTO_HOST_BYTES)


def _free_host_bytes() -> int:
    """Free memory of the machine, or of the control group if that is tighter (Slurm and containers set one)."""
    free: int = psutil.virtual_memory().available
    limit = Path("/sys/fs/cgroup/memory.max")
    usage = Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and (text := limit.read_text().strip()) != "max":
        free = min(free, int(text) - int(usage.read_text()))
    return free
