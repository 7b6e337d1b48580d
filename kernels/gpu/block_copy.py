"""Moves of whole KV cache blocks: into a contiguous buffer, out of it, and from block to block.

    gather: buffer[i] = cache[blocks[i]]      scatter: cache[blocks[i]] = buffer[i]      copy: scatter(gather)

A copy goes through a buffer because a block may be the source of one copy and the target of another.
"""

# ruff: noqa: N803 (constants in capitals, as Triton has them)

import torch
import triton
import triton.language as tl
from torch import Tensor

from batchrunner.kernels.gpu.specialization import TYPE_NAMES, Specialization, launch_options

TILE = 4096
LAUNCHED = launch_options(num_warps=4, num_stages=1)


@triton.jit
def _gather_blocks_kernel(cache_ptr, buffer_ptr, blocks_ptr, size, TILE: tl.constexpr):
    index = tl.program_id(0).to(tl.int64)
    block = tl.load(blocks_ptr + index)
    offsets = tl.program_id(1) * TILE + tl.arange(0, TILE)
    mask = offsets < size
    tl.store(buffer_ptr + index * size + offsets, tl.load(cache_ptr + block * size + offsets, mask), mask)


@triton.jit
def _scatter_blocks_kernel(buffer_ptr, cache_ptr, blocks_ptr, size, TILE: tl.constexpr):
    index = tl.program_id(0).to(tl.int64)
    block = tl.load(blocks_ptr + index)
    offsets = tl.program_id(1) * TILE + tl.arange(0, TILE)
    mask = offsets < size
    tl.store(cache_ptr + block * size + offsets, tl.load(buffer_ptr + index * size + offsets, mask), mask)


def gather_blocks(cache: Tensor, blocks: Tensor) -> Tensor:
    """The blocks [N] int64 of the contiguous cache [num_blocks, …] as a new buffer [N, elements of a block]."""
    buffer = torch.empty(len(blocks), cache[0].numel(), dtype=cache.dtype, device=cache.device)
    _gather_blocks_kernel[_grid(buffer)](cache, buffer, blocks, buffer.shape[1], TILE=TILE, **LAUNCHED)
    return buffer


def scatter_blocks(buffer: Tensor, cache: Tensor, blocks: Tensor) -> None:
    """Write the rows of the contiguous buffer [N, elements of a block] to blocks [N] int64, distinct, of the cache."""
    _scatter_blocks_kernel[_grid(buffer)](buffer, cache, blocks, buffer.shape[1], TILE=TILE, **LAUNCHED)


def copy_blocks(cache: Tensor, sources: Tensor, targets: Tensor) -> None:
    """Copy blocks sources [N] to targets [N], int64, targets distinct: all are read before any is written."""
    scatter_blocks(gather_blocks(cache, sources), cache, targets)


def gather_blocks_reference(cache: Tensor, blocks: Tensor) -> Tensor:
    """The twin of gather_blocks in plain torch."""
    return cache[blocks].flatten(1)


def scatter_blocks_reference(buffer: Tensor, cache: Tensor, blocks: Tensor) -> None:
    """The twin of scatter_blocks in plain torch."""
    cache[blocks] = buffer.view(-1, *cache.shape[1:])


def specializations() -> list[Specialization]:
    """Each kernel in each dtype."""
    found = []
    for dtype in TYPE_NAMES.values():
        pointers = {"cache_ptr": f"*{dtype}", "buffer_ptr": f"*{dtype}", "blocks_ptr": "*i64"}
        for kernel, name in ((_gather_blocks_kernel, "gather_blocks"), (_scatter_blocks_kernel, "scatter_blocks")):
            signature = {arg: pointers.get(arg, "i32") for arg in kernel.arg_names} | {"TILE": "constexpr"}
            label = f"{name} {dtype}"
            found.append(Specialization(kernel, signature, {"TILE": TILE}, LAUNCHED, label))
    return found


def _grid(buffer: Tensor) -> tuple[int, int]:
    return (buffer.shape[0], triton.cdiv(buffer.shape[1], TILE))
