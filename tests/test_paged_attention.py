"""Paged attention against a direct computation, on odd shapes."""

import itertools

import pytest
import torch

from batchrunner.kernels.paged_attention import (
    AttentionOptions,
    Segment,
    group_decodes,
    paged_attention,
    write_kv,
)

CPU = torch.device("cpu")


def direct(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, position: int, options: AttentionOptions
) -> torch.Tensor:
    """Attention of one query token [heads, dim] over keys and values [tokens, kv heads, dim], in float64."""
    group = query.shape[0] // key.shape[1]
    low = max(0, position - options.window + 1) if options.window else 0
    out = []
    for head in range(query.shape[0]):
        k, v = (x[low : position + 1, head // group].double() for x in (key, value))
        scores = k @ query[head].double() * options.scale
        if options.softcap:
            scores = torch.tanh(scores / options.softcap) * options.softcap
        sink = [] if options.sinks is None else [options.sinks[head : head + 1].double()]
        weights = torch.softmax(torch.cat([scores, *sink]), dim=0)[: len(scores)]
        out.append(weights @ v)
    return torch.stack(out)


@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(4, 2, 16), (3, 3, 10), (9, 3, 64), (2, 1, 80)])
@pytest.mark.parametrize("block_size", [1, 5, 16])
@pytest.mark.parametrize(("window", "softcap", "with_sinks"), [(0, 0.0, False), (6, 0.0, False), (0, 3.0, True)])
def test_a_mixed_step_equals_the_direct_computation(
    heads: int, kv_heads: int, dim: int, block_size: int, window: int, softcap: float, with_sinks: bool
) -> None:
    torch.manual_seed(heads * 100 + block_size)
    sinks = torch.randn(heads) if with_sinks else None
    options = AttentionOptions(dim**-0.5, window, softcap, sinks)
    spans = [(0, 1), (12, 1), (0, 9), (7, 11), (33, 1), (16, 1), (3, 1)]  # (computed before, new tokens)
    num_blocks = 60
    k_cache, v_cache = torch.zeros(2, num_blocks, block_size, kv_heads, dim)
    free = itertools.count(1) if block_size > 1 else itertools.count(0)
    keys = [torch.randn(start + new, kv_heads, dim) for start, new in spans]
    values = [torch.randn(start + new, kv_heads, dim) for start, new in spans]
    if block_size == 1:
        k_cache, v_cache = torch.zeros(2, 200, block_size, kv_heads, dim)
    segments, first = [], 0
    for (start, new), key, value in zip(spans, keys, values, strict=True):
        table = torch.tensor([next(free) for _ in range(-(-(start + new) // block_size))])
        positions = torch.arange(start + new)
        write_kv(key, value, k_cache, v_cache, table[positions // block_size] * block_size + positions % block_size)
        segments.append(Segment(first, new, start + new, table))
        first += new
    query = torch.randn(first, heads, dim)
    chunks = [segment for segment in segments if segment.num_tokens > 1]
    decodes = group_decodes([segment for segment in segments if segment.num_tokens == 1], CPU)
    out = paged_attention(query, k_cache, v_cache, chunks, decodes, options)
    for segment, (start, new), key, value in zip(segments, spans, keys, values, strict=True):
        for i in range(new):
            expected = direct(query[segment.start + i], key, value, start + i, options)
            torch.testing.assert_close(out[segment.start + i].double(), expected, atol=2e-6, rtol=2e-5)


def test_decodes_of_very_different_lengths_are_not_padded_together() -> None:
    segments = [Segment(i, 1, n, torch.arange(n)) for i, n in enumerate([100, 3, 4, 90, 1, 95])]
    groups = group_decodes(segments, CPU)
    rows = [group.rows.tolist() for group in groups]
    assert sorted(row for group in rows for row in group) == [0, 1, 2, 3, 4, 5]
    for group in groups:
        padded = group.blocks.numel()
        assert int(group.context_lens.sum()) >= 0.75 * padded


def test_no_decodes_make_no_groups() -> None:
    assert group_decodes([], CPU) == []
