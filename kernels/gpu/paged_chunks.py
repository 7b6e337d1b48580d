"""Attention of prompt chunks, and of mixes of chunks and single tokens, over the paged KV cache.

    out = softmax(scale · q·k[lo..t] (+ soft cap, + sink)) · v[lo..t]        lo = 0, or t - window + 1

(FlashAttention, arXiv 2205.14135 and 2307.08691.) A program takes one tile of a segment's packed rows (packed_rows.py)
through all tiles of keys that any of them sees. A sink is a key seen first that has a score but no value.
"""

# ruff: noqa: N803 (constants in capitals, as Triton has them)

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from batchrunner.kernels.attention_work import AttentionOptions
from batchrunner.kernels.gpu.attention_arguments import attention_specializations, shared_arguments
from batchrunner.kernels.gpu.merge_states import PartialAttention, merge_states_reference
from batchrunner.kernels.gpu.packed_rows import locate_tile, num_tiles
from batchrunner.kernels.gpu.softmax import (
    LOG2_E,
    LOWEST,
    attend_keys,
    attend_reference,
    gather_kv,
    load_query,
    normalise,
    scale_of,
)
from batchrunner.kernels.gpu.specialization import Specialization, launch_options


@dataclass(frozen=True, slots=True)
class Chunks:
    """S segments of tokens, int32 on the device.

    Segment s has the rows from segment_starts[s] on, as many as from token_begins[s] to token_begins[s + 1]: the
    segments' tokens counted one after the other, num_tokens in all. They are the last of the context_lens[s] tokens in
    the blocks block_tables[s]. token_begins [S + 1], block_tables [S, max_blocks].
    """

    segment_starts: Tensor
    token_begins: Tensor
    context_lens: Tensor
    block_tables: Tensor
    num_tokens: int


def _launched(head_dim: int, dtype: torch.dtype) -> dict[str, int]:
    """ROW_TILE counts packed rows, each a query head of a token.

    Found by compiling: other shapes of float32 spill registers, and 64 rows of 256 dimensions take all the shared
    memory of a gfx942.
    """
    if dtype.itemsize == 2:
        row_tile, num_warps = 64, 8
    elif head_dim <= 64:
        row_tile, num_warps = 32, 4
    elif head_dim < 128:
        row_tile, num_warps = 16, 2
    elif head_dim == 128:
        row_tile, num_warps = 32, 8
    else:
        row_tile, num_warps = 16, 8
    return {"ROW_TILE": row_tile, **launch_options(num_warps, num_stages=2)}


class _Segments(NamedTuple):
    """Chunks as the kernel takes them."""

    starts: Any
    token_begins: Any
    context_lens: Any
    block_tables: Any


@triton.jit(do_not_specialize=["table_stride", "num_segments"])
def paged_chunks_kernel(
    query,
    cache,
    scoring,
    segments,
    sinks,
    out,
    table_stride,
    num_segments,
    sizes,
    ROW_TILE: tl.constexpr,
):
    """Program (tile of packed rows, KV head)."""
    kv_head = tl.program_id(1)
    group_size: tl.constexpr = sizes.group
    segment, _, num_rows, row_begin = locate_tile(
        tl.program_id(0), segments.token_begins, num_segments, group_size, ROW_TILE
    )
    if row_begin >= num_rows:
        return
    packed_rows = row_begin + tl.arange(0, ROW_TILE)
    is_row = packed_rows < num_rows
    packed_rows = tl.minimum(packed_rows, num_rows - 1)
    tokens = packed_rows // group_size
    rows = (tl.load(segments.starts + segment) + tokens).to(tl.int64)
    context_len = tl.load(segments.context_lens + segment)
    heads = kv_head * group_size + packed_rows % group_size
    running_max = tl.full([ROW_TILE], LOWEST, tl.float32)
    running_sum = tl.zeros([ROW_TILE], tl.float32)
    if sinks is not None:
        running_max = tl.load(sinks + heads).to(tl.float32) * LOG2_E
        running_sum += 1
    state = attend_keys(
        (running_max, running_sum, tl.zeros([ROW_TILE, sizes.value_tile], tl.float32)),
        load_query(query, rows[:, None], heads, sizes),
        context_len - num_rows // group_size + tokens,
        scale_of(heads, scoring),
        segments.block_tables + segment.to(tl.int64) * table_stride,
        0,
        (0, context_len),
        cache,
        kv_head,
        scoring,
        sizes,
    )
    result, _ = normalise(state)
    dims = tl.arange(0, sizes.value_tile)[None, :]
    out_rows = out + (rows * cache.num_heads * group_size + heads)[:, None] * sizes.value_dim
    mask = is_row[:, None] & (dims < sizes.value_dim)
    tl.store(out_rows + dims, result.to(out.dtype.element_ty), mask=mask)


def paged_chunks(
    query: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    chunks: Chunks,
    options: AttentionOptions,
    out: Tensor,
) -> None:
    """Attend the segments; write their rows of out [T, num_heads, value_dim], which is contiguous.

    query [T, num_heads, head_dim].
    """
    assert out.is_contiguous()
    num_segments, num_kv_heads = len(chunks.segment_starts), k_cache.shape[1]
    launched = _launched(query.shape[2], query.dtype)
    tiles = num_tiles(chunks.num_tokens, num_segments, query.shape[1] // num_kv_heads, launched["ROW_TILE"])
    paged_chunks_kernel[(tiles, num_kv_heads)](
        **shared_arguments(query, k_cache, v_cache, options),
        segments=_Segments(chunks.segment_starts, chunks.token_begins, chunks.context_lens, chunks.block_tables),
        sinks=options.sinks,
        out=out,
        table_stride=chunks.block_tables.stride(0),
        num_segments=num_segments,
        **launched,
    )


def paged_chunks_reference(
    query: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    chunks: Chunks,
    options: AttentionOptions,
    out: Tensor,
) -> None:
    """The same in plain torch, a segment at a time."""
    num_new_tokens = chunks.token_begins.diff().tolist()
    spans = zip(chunks.segment_starts.tolist(), num_new_tokens, chunks.context_lens.tolist(), strict=True)
    for segment, (start, num_new, context_len) in enumerate(spans):
        rows = slice(start, start + num_new)
        key = gather_kv(k_cache, chunks.block_tables[segment], context_len)
        value = gather_kv(v_cache, chunks.block_tables[segment], context_len)
        positions = torch.arange(context_len - num_new, context_len, device=query.device)
        state = attend_reference(query[rows], key, value, positions, 0, options)
        if options.sinks is not None:
            sink = PartialAttention(torch.zeros_like(state.out), options.sinks.float().expand(num_new, -1))
            state = merge_states_reference(state, sink)
        out[rows] = state.out.to(out.dtype)


def specializations() -> list[Specialization]:
    """For all head dimensions and types, without options and with all of them, sinks among them."""
    types = {"segments": _Segments(*["*i32"] * 4), "out": "*", "table_stride": "i32", "num_segments": "i32"}
    return attention_specializations(paged_chunks_kernel, types, _launched)
