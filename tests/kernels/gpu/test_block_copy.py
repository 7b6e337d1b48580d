"""Moves of KV cache blocks on the GPU: exact, against a loop, the twins and plain torch."""

import pytest
import torch

from batchrunner.kernels.gpu.block_copy import (
    copy_blocks,
    gather_blocks,
    gather_blocks_reference,
    scatter_blocks,
    scatter_blocks_reference,
)
from batchrunner.kernels.torch_kernels import TorchKernels

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
SHAPES = [(1,), (2, 1, 3), (3, 7, 80), (2, 16, 160)]  # of a block; the last takes more than one tile


def random_cache(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    torch.manual_seed(len(shape))
    return torch.randn(9, *shape).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_blocks_to_a_buffer_and_back(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    cache = random_cache(shape, dtype)
    blocks = torch.tensor([7, 0, 3, 8])
    buffer = gather_blocks(cache, blocks)
    assert buffer.is_contiguous() and torch.equal(buffer, gather_blocks_reference(cache, blocks))
    for row, block in zip(buffer, blocks.tolist(), strict=True):
        assert torch.equal(row, cache[block].flatten())

    other, expected = random_cache(shape, dtype).flip(0), random_cache(shape, dtype).flip(0)
    targets = torch.tensor([1, 8, 2, 5])
    scatter_blocks(buffer, other, targets)
    scatter_blocks_reference(buffer, expected, targets)
    assert torch.equal(other, expected)
    for source, target in zip(blocks.tolist(), targets.tolist(), strict=True):
        assert torch.equal(other[target], cache[source])
    assert torch.equal(other[[0, 3, 4, 6, 7]], random_cache(shape, dtype).flip(0)[[0, 3, 4, 6, 7]])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_block_that_is_source_and_target_is_read_first(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    cache = random_cache(shape, dtype)
    before, expected = cache.clone(), cache.clone()
    sources, targets = torch.tensor([1, 2, 3, 1, 5]), torch.tensor([2, 3, 1, 0, 5])  # a cycle, a fan-out, a self-copy
    copy_blocks(cache, sources, targets)
    TorchKernels(torch.device("cpu")).copy_blocks(expected, sources, targets)
    assert torch.equal(cache, expected)
    assert torch.equal(cache[[2, 3, 1, 0, 5]], before[[1, 2, 3, 1, 5]])
    assert torch.equal(cache[[4, 6, 7, 8]], before[[4, 6, 7, 8]])


def test_no_blocks() -> None:
    cache, none = random_cache((2, 4), torch.float32), torch.tensor([], dtype=torch.int64)
    before = cache.clone()
    assert gather_blocks(cache, none).shape == (0, 8)
    copy_blocks(cache, none, none)
    assert torch.equal(cache, before)
