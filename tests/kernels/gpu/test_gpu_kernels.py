"""The Triton kernels behind their common interface: what they do to a whole step is what plain torch does."""

from typing import Any

import pytest
import torch

from batchrunner import SamplingParams
from batchrunner.engine.model.prefix_groups import GroupRule, group_by_prefix
from batchrunner.engine.request import Request
from batchrunner.engine.text.sampler import sample
from batchrunner.kernels.attention_work import AttentionWork, Segment
from batchrunner.kernels.gpu.gpu_kernels import TritonKernels
from batchrunner.kernels.gpu.merge_states import SPLIT_SIZE
from batchrunner.kernels.torch_kernels import TorchKernels
from tests.kernels.gpu.attention import TOLERANCE, Heads, PagedCase

CPU = torch.device("cpu")


def mixed_step(heads: Heads, block_size: int, dtype: torch.dtype) -> tuple[PagedCase, AttentionWork, int]:
    """Two chunks among six decodes, of which five share block 0, two of them block 1 too and two others blocks 1, 2."""
    num_new = [3 * block_size + 2, 1, 1, 1, 9, 1, 1, 1]
    context_lens = [num_new[0], *(3 * block_size + i for i in (1, 5, 2)), 40, *(3 * block_size + i for i in (3, 4, 1))]
    case = PagedCase(heads, block_size, context_lens, dtype)
    tables = case.block_tables
    tables[[1, 2, 3, 5, 6], 0] = tables[1, 0].clone()
    tables[[1, 5], 1] = tables[1, 1].clone()
    tables[[3, 6], 1:3] = tables[3, 1:3].clone()
    segments, start = [], 0
    for request, (count, context_len) in enumerate(zip(num_new, context_lens, strict=True)):
        table = tables[request, : -(-context_len // block_size)].tolist()
        segments.append(Segment(start, count, context_len, table))
        start += count
    return case, group_by_prefix(segments, block_size, GroupRule(min_members=2, min_tokens=1)), start


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("names", [(), ("window", "softcap", "sinks", "head_scales")])
@pytest.mark.parametrize("block_size", [5, 16])
def test_a_mixed_step_with_nested_groups(dtype: torch.dtype, names: tuple[str, ...], block_size: int) -> None:
    case, work, num_rows = mixed_step(Heads(2, 3, 20, 16), block_size, dtype)
    assert [len(level) for level in work.levels] == [1, 2]
    query, options = case.query(num_rows), case.options(*names, window=block_size + 3)
    triton, plain = TritonKernels(CPU), TorchKernels(CPU)
    got = triton.attend(query, case.k_cache, case.v_cache, triton.plan(work, block_size), options)
    # torch multiplies what it masks, so the NaN of memory that nobody has written must go.
    k_cache, v_cache = (cache.float().nan_to_num() for cache in (case.k_cache, case.v_cache))
    expected = plain.attend(query.float(), k_cache, v_cache, plain.plan(work, block_size), options)
    assert got.dtype == dtype
    torch.testing.assert_close(got.float(), expected, atol=TOLERANCE[dtype], rtol=0)


def test_a_query_with_strides_of_its_own() -> None:
    case, work, num_rows = mixed_step(Heads(1, 2, 16, 16), 16, torch.float32)
    kernels, query = TritonKernels(CPU), case.query(num_rows)
    plan = kernels.plan(work, 16)
    strided = query.transpose(1, 2).contiguous().transpose(1, 2)
    assert strided.stride(-1) != 1
    caches = (case.k_cache, case.v_cache)
    got, expected = (kernels.attend(each, *caches, plan, case.options()) for each in (strided, query))
    assert torch.equal(got, expected)


def test_decodes_of_very_different_lengths_are_launched_apart() -> None:
    """A long request must not make the buffer of splits as wide for all others."""
    num_own_keys = [1, SPLIT_SIZE, 5 * SPLIT_SIZE, SPLIT_SIZE + 1, 8 * SPLIT_SIZE, 7]
    segments = [
        Segment(row, 1, 32 + keys, list(range(2 + -(-keys // 16))), kv_begin=32)
        for row, keys in enumerate(num_own_keys)
    ]
    decodes = TritonKernels(CPU).plan(AttentionWork(segments), 16).decodes
    assert [bucket.rows.tolist() for bucket in decodes] == [[0, 1, 5], [2, 4], [3]]
    assert [bucket.block_tables.shape[1] * 16 // SPLIT_SIZE for bucket in decodes] == [1, 8, 1]
    assert [bucket.block_tables[0, 0] for bucket in decodes] == [2, 2, 2]


@pytest.mark.parametrize("rotary_dim", [16, 10])
def test_what_is_done_to_the_cache(rotary_dim: int) -> None:
    torch.manual_seed(0)
    num_heads, num_kv_heads, block_size = 6, 2, 4
    rotated_slots, plain_slots = torch.tensor([5, 0, 11, 7]), torch.tensor([8, 1, 3, 6])
    qkv = torch.randn(4, (num_heads + 2 * num_kv_heads) * 16)
    cos, sin = torch.randn(2, 4, rotary_dim)
    key, value = torch.randn(2, 4, num_kv_heads, 16)
    sources, targets = torch.tensor([1, 2]), torch.tensor([2, 0])
    results = []
    for kernels in (TritonKernels(CPU), TorchKernels(CPU)):
        k_cache, v_cache = torch.zeros(2, 3, num_kv_heads, block_size, 16)
        query = kernels.rotate_and_write_kv(qkv.clone(), cos, sin, k_cache, v_cache, rotated_slots, num_heads)
        kernels.write_kv(key, value, k_cache, v_cache, plain_slots)
        kernels.copy_blocks(v_cache, sources, targets)
        results.append([query, k_cache, v_cache])
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)


def test_what_is_done_to_rows() -> None:
    torch.manual_seed(0)
    x, residual, weight, gate_up = torch.randn(5, 48), torch.randn(5, 48), torch.randn(48), torch.randn(5, 96)
    results = []
    for kernels in (TritonKernels(CPU), TorchKernels(CPU)):
        total = residual.clone()
        normed = kernels.rms_norm(x, weight, 1e-5), kernels.add_rms_norm(x, total, weight, 1e-5)
        results.append([*normed, total, kernels.swiglu(gate_up)])
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)


def test_tokens_that_are_chosen_and_sampled() -> None:
    torch.manual_seed(1)
    logits = 2 * torch.randn(7, 300)
    options: list[dict[str, Any]] = [
        {"temperature": 0.0, "top_k": 3},
        {"temperature": 1.0},
        {"temperature": 0.7, "top_k": 9},
        {"temperature": 0.9, "top_p": 0.8},
        {"temperature": 1.3, "min_p": 0.05},
        {"temperature": 1.1, "top_k": 40, "top_p": 0.9, "min_p": 0.01, "seed": 2**63 - 1},
        {"temperature": 0.0},
    ]
    requests = [Request(f"r{row}", [5] * (2 + row), 2, SamplingParams(**option)) for row, option in enumerate(options)]
    assert sample(logits, requests, TritonKernels(CPU)) == sample(logits, requests)
    assert sample(torch.empty(0, 300), [], TritonKernels(CPU)) == []
