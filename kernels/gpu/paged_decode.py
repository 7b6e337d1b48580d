"""Attention of one query token a request over the paged KV cache, the cache split among programs.

    split i: (out_i, lse_i) = softmax(scale · q·k (+ soft cap)) · v over SPLIT_SIZE keys; then all are merged

(Flash-decoding: Dao, Haziza, Massa and Sizov, 2023.) The query heads that share a KV head are the rows of one tile. The
splits begin at fixed positions, so a request's result doesn't depend on the requests beside it.
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
from batchrunner.kernels.gpu.merge_states import SPLIT_SIZE, PartialAttention, merge_splits, merge_states_reference
from batchrunner.kernels.gpu.softmax import (
    LOWEST,
    attend_keys,
    attend_reference,
    gather_kv,
    load_query,
    normalise,
    scale_of,
)
from batchrunner.kernels.gpu.specialization import Specialization, launch_options

GROUP_TILE = 16  # query heads in one tile: the least that tensor cores take
LAUNCHED = {"GROUP_TILE": GROUP_TILE, "SPLIT_SIZE": SPLIT_SIZE, **launch_options(num_warps=4, num_stages=3)}


@dataclass(frozen=True, slots=True)
class Decodes:
    """B requests with one token each, int32 on the device.

    rows [B]: where their tokens lie. context_lens [B] count the token itself. Entry j of block_tables [B, max_blocks]
    holds the positions from kv_begins [B] + j · block_size on.
    """

    rows: Tensor
    block_tables: Tensor
    kv_begins: Tensor
    context_lens: Tensor


class _Requests(NamedTuple):
    """Decodes as the kernel takes them."""

    rows: Any
    block_tables: Any
    kv_begins: Any
    context_lens: Any


@triton.jit(do_not_specialize=["table_stride"])
def paged_decode_kernel(
    query,
    cache,
    scoring,
    requests,
    split_out,
    split_lse,
    table_stride,
    sizes,
    GROUP_TILE: tl.constexpr,
    SPLIT_SIZE: tl.constexpr,
):
    """Program (request, tile of query heads of one KV head, split)."""
    request = tl.program_id(0).to(tl.int64)
    split = tl.program_id(2)
    kv_begin = tl.load(requests.kv_begins + request)
    context_len = tl.load(requests.context_lens + request)
    split_begin = kv_begin + split * SPLIT_SIZE
    if split_begin >= context_len:
        return
    group_size: tl.constexpr = sizes.group
    tiles_per_group: tl.constexpr = (group_size + GROUP_TILE - 1) // GROUP_TILE
    kv_head = tl.program_id(1) // tiles_per_group
    members = tl.program_id(1) % tiles_per_group * GROUP_TILE + tl.arange(0, GROUP_TILE)
    heads = kv_head * group_size + tl.minimum(members, group_size - 1)
    row = tl.load(requests.rows + request).to(tl.int64)
    nothing_seen = (
        tl.full([GROUP_TILE], LOWEST, tl.float32),
        tl.zeros([GROUP_TILE], tl.float32),
        tl.zeros([GROUP_TILE, sizes.value_tile], tl.float32),
    )
    state = attend_keys(
        nothing_seen,
        load_query(query, row, heads, sizes),
        tl.zeros([GROUP_TILE], tl.int32) + context_len - 1,
        scale_of(heads, scoring),
        requests.block_tables + request * table_stride,
        kv_begin,
        (split_begin, tl.minimum(split_begin + SPLIT_SIZE, context_len)),
        cache,
        kv_head,
        scoring,
        sizes,
    )
    out, lse = normalise(state)
    is_member = members < group_size
    states = (request * cache.num_heads * group_size + heads) * tl.num_programs(2) + split
    dims = tl.arange(0, sizes.value_tile)[None, :]
    mask = is_member[:, None] & (dims < sizes.value_dim)
    tl.store(split_out + states[:, None] * sizes.value_dim + dims, out, mask=mask)
    tl.store(split_lse + states, lse, mask=is_member)


def paged_decode(
    query: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    decodes: Decodes,
    options: AttentionOptions,
    prefix: PartialAttention | None,
    out: Tensor,
) -> None:
    """Attend the requests; write their rows of out [T, num_heads, value_dim], which is contiguous.

    query [T, num_heads, head_dim]. prefix: the state of all T rows, without sinks, over the keys before kv_begins.
    """
    assert out.is_contiguous()
    (num_requests, max_blocks), (num_kv_heads, block_size) = decodes.block_tables.shape, k_cache.shape[1:3]
    num_heads, value_dim = out.shape[1:]
    max_splits = triton.cdiv(max_blocks * block_size, SPLIT_SIZE)
    split_out = out.new_empty(num_requests, num_heads, max_splits, value_dim, dtype=torch.float32)
    split_lse = out.new_empty(num_requests, num_heads, max_splits, dtype=torch.float32)
    arguments = shared_arguments(query, k_cache, v_cache, options)
    num_tiles = num_kv_heads * triton.cdiv(num_heads // num_kv_heads, GROUP_TILE)
    paged_decode_kernel[(num_requests, num_tiles, max_splits)](
        **arguments,
        requests=_Requests(decodes.rows, decodes.block_tables, decodes.kv_begins, decodes.context_lens),
        split_out=split_out,
        split_lse=split_lse,
        table_stride=decodes.block_tables.stride(0),
        **LAUNCHED,
    )
    num_keys = decodes.context_lens - decodes.kv_begins
    merge_splits(split_out, split_lse, decodes.rows, num_keys, prefix, options.sinks, out)


def paged_decode_reference(
    query: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    decodes: Decodes,
    options: AttentionOptions,
    prefix: PartialAttention | None,
    out: Tensor,
) -> None:
    """The same in plain torch, a request at a time."""
    spans = zip(decodes.rows.tolist(), decodes.kv_begins.tolist(), decodes.context_lens.tolist(), strict=True)
    for request, (row, kv_begin, context_len) in enumerate(spans):
        key = gather_kv(k_cache, decodes.block_tables[request], context_len - kv_begin)
        value = gather_kv(v_cache, decodes.block_tables[request], context_len - kv_begin)
        position = decodes.context_lens[request : request + 1] - 1
        state = attend_reference(query[row : row + 1], key, value, position, kv_begin, options)
        if prefix is not None:
            state = merge_states_reference(PartialAttention(prefix.out[row, None], prefix.lse[row, None]), state)
        if options.sinks is not None:
            sink = PartialAttention(torch.zeros_like(state.out), options.sinks.float()[None])
            state = merge_states_reference(state, sink)
        out[row] = state.out[0].to(out.dtype)


def specializations() -> list[Specialization]:
    """For all head dimensions and types, without options and with all of them."""
    types = {"requests": _Requests(*["*i32"] * 4), "split_out": "*fp32", "split_lse": "*fp32", "table_stride": "i32"}
    return attention_specializations(paged_decode_kernel, types, lambda head_dim, dtype: LAUNCHED)
