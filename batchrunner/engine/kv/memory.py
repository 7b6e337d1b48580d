"""How much memory the KV pool and the host tier get."""

import math
from dataclasses import dataclass
from pathlib import Path

import psutil

from batchrunner.errors import DeviceError
from batchrunner.spec.engine import EngineConfig

# Of what is free once the model is loaded; the rest is for activations and for whoever shares the machine.
SHARE_OF_HOST = 0.4
SHARE_OF_DEVICE = 0.85
MAX_AUTO_HOST_BYTES = 4 * 2**30
SHARE_OF_HOST_FOR_TIER = 0.15
MAX_BLOCKS_FOR_TIER = 4  # times those of the pool


@dataclass(frozen=True, slots=True)
class Budget:
    """Bytes and blocks of a run. activation_bytes is an estimate: the widest layer of the fullest step."""

    weight_bytes: int
    activation_bytes: int
    kv_bytes_per_token: int
    block_size: int
    num_blocks: int
    num_host_blocks: int
    disk_bytes: int

    @property
    def block_bytes(self) -> int:
        """M = 2 · n_layer · n_kv_head · d_head · n_tokens · sizeof(dtype), for the tokens of one block."""
        return self.kv_bytes_per_token * self.block_size

    @property
    def num_kv_tokens(self) -> int:
        return self.num_blocks * self.block_size

    @property
    def kv_bytes(self) -> int:
        return self.num_blocks * self.block_bytes

    def num_rows_at_once(self, mean_tokens: float) -> int:
        """How many requests of mean_tokens, prompt and answer, the pool holds if they share nothing."""
        blocks_a_row = max(1, math.ceil(mean_tokens / self.block_size))
        return self.num_blocks // blocks_a_row

    def __str__(self) -> str:
        below = f", host tier {_size(self.num_host_blocks * self.block_bytes)}" if self.num_host_blocks else ""
        below += f", disk tier {_size(self.disk_bytes)}" if self.disk_bytes else ""
        return (
            f"memory: weights {_size(self.weight_bytes)}, activations about {_size(self.activation_bytes)}, KV "
            f"{_size(self.kv_bytes)} = {self.num_blocks:,} blocks of {self.block_size} = {self.num_kv_tokens:,} "
            f"tokens of {self.kv_bytes_per_token:,} bytes{below}"
        )


def activation_bytes(num_tokens: int, hidden: int, widest: int, num_logits: int, vocabulary: int, itemsize: int) -> int:
    """What a step of num_tokens needs beside weights and KV: the residual and one layer's inputs and products (about
    eight of the hidden size and three of the widest layer), and the logits of num_logits tokens."""
    return (num_tokens * (8 * hidden + 3 * widest) + num_logits * vocabulary) * itemsize


def budget_for(
    config: EngineConfig, device: str, free: int, kv_bytes_per_token: int, weight_bytes: int, activation_bytes: int
) -> Budget:
    """Pool and tiers as a run has them. free: bytes of the device's memory beside the weights. Raises DeviceError."""
    num_blocks = num_kv_blocks(config, kv_bytes_per_token, device, free)
    block_bytes = kv_bytes_per_token * config.block_size
    free_in_host = free - num_blocks * block_bytes if device == "cpu" else free_host_bytes()
    return Budget(
        weight_bytes=weight_bytes,
        activation_bytes=activation_bytes,
        kv_bytes_per_token=kv_bytes_per_token,
        block_size=config.block_size,
        num_blocks=num_blocks,
        num_host_blocks=num_host_blocks(config, num_blocks, block_bytes, free_in_host),
        disk_bytes=config.tiers.disk.size if config.tiers.disk else 0,
    )


def num_kv_blocks(config: EngineConfig, bytes_per_token: int, device: str, free: int) -> int:
    """The size of the pool in blocks, from kv_tokens or from bytes of memory over the KV formula's bytes per token.

    device: the kind, "cpu" or "cuda". free: bytes of its memory, with the model loaded. Raises DeviceError if not even
    one block fits, or if the memory asked for is not there.
    """
    if config.kv_tokens is not None:
        num_blocks = config.kv_tokens // config.block_size
        asked = f"engine.kv_tokens: {config.kv_tokens}"
    else:
        num_bytes = _auto_bytes(device, free) if config.kv_memory == "auto" else config.kv_memory
        num_blocks = num_bytes // (bytes_per_token * config.block_size)
        asked = f"engine.kv_memory: {num_bytes:,} bytes"
    missing = num_blocks * bytes_per_token * config.block_size - free
    if config.has_fixed_pool and missing > 0:
        raise DeviceError(f"{asked} needs {missing:,} bytes more than are free; give less, or kv_memory: auto")
    if num_blocks < 1:
        raise DeviceError(f"{asked} holds not one block of {config.block_size} tokens ({bytes_per_token:,} bytes each)")
    return num_blocks


def num_host_blocks(config: EngineConfig, num_blocks: int, block_bytes: int, free: int) -> int:
    """The size of the host tier in blocks, of free bytes of host memory. It is taken as it is used.

    Raises DeviceError if the memory asked for is not there.
    """
    if config.preemption == "recompute" or not config.prefix_caching:
        return 0
    if config.tiers.host == "auto":
        return max(0, min(MAX_BLOCKS_FOR_TIER * num_blocks, int(free * SHARE_OF_HOST_FOR_TIER) // block_bytes))
    if config.tiers.host > free:
        raise DeviceError(
            f"engine.tiers.host: {config.tiers.host:,} bytes are {config.tiers.host - free:,} more than are free; "
            "give less, or auto"
        )
    if 0 < config.tiers.host < block_bytes:
        raise DeviceError(
            f"engine.tiers.host: {config.tiers.host:,} bytes hold not one block of {block_bytes:,}; give more, or 0"
        )
    return config.tiers.host // block_bytes


def free_host_bytes() -> int:
    """Free memory of the machine, or of a control group above us if that is tighter (Slurm and containers set one)."""
    free: int = psutil.virtual_memory().available
    return int(min([free, *map(_free_in_group, _control_groups())]))


def _control_groups() -> list[Path]:
    """The folders of the control groups (version 2) that this process is in, the innermost first."""
    own = Path("/proc/self/cgroup")
    names = [line[3:] for line in own.read_text().splitlines() if line.startswith("0::")] if own.exists() else []
    root = Path("/sys/fs/cgroup")
    return [root / folder.relative_to("/") for name in names for folder in (Path(name), *Path(name).parents)]


def _free_in_group(folder: Path) -> float:
    """Bytes; cached files that the system would give back count as free."""
    try:
        limit = (folder / "memory.max").read_text().strip()
        if limit == "max":
            return math.inf
        used = int((folder / "memory.current").read_text())
        counts = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return max(0, int(limit) - used + int(counts.get("inactive_file", 0)))
    except OSError:  # no such group seen from here, as in a container
        return math.inf


def _auto_bytes(device: str, free: int) -> int:
    if device == "cuda":
        return int(free * SHARE_OF_DEVICE)
    return min(int(free * SHARE_OF_HOST), MAX_AUTO_HOST_BYTES)


def _size(num_bytes: int) -> str:
    if num_bytes >= 2**30:
        return f"{num_bytes / 2**30:,.1f} GiB"
    return f"{num_bytes / 2**20:,.0f} MiB"
