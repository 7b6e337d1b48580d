"""Cascade attention: requests that share a prefix attend it together, once, before each attends the rest alone.

    state of a row = (out, lse) over the keys of its groups, level after level; merged with its own keys in the end

The query heads of all members of a group are the rows of common tiles (packed_rows.py), so that the prefix is read once
for many rows (Hydragen, arXiv 2402.05099; FlashInfer, arXiv 2501.01005).
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
    load_vectors,
    normalise,
    scale_of,
)
from batchrunner.kernels.gpu.specialization import Specialization, launch_options


def _launched(head_dim: int, dtype: torch.dtype) -> dict[str, int]:
    """ROW_TILE counts packed rows, each a query head of a member."""
    # Found by compiling: with 32 rows float32 spills registers, but for 256 dimensions with 16.
    row_tile = 32 if dtype.itemsize == 2 or head_dim > 128 else 16
    return {"ROW_TILE": row_tile, **launch_options(num_warps=4, num_stages=2)}


@dataclass(frozen=True, slots=True)
class PrefixGroups:
    """The groups of one level, N of them; a row is a member of at most one. All tensors int32.

    member_rows [M]: rows of the query, group after group; member_begins [N + 1]: where each group's begin in them.
    A group attends positions kv_begins..kv_ends-1 [N], all before its members' positions. Entry j of its row of
    block_tables [N, max_blocks] holds the positions from kv_begin + j · block_size on.
    """

    member_rows: Tensor
    member_begins: Tensor
    block_tables: Tensor
    kv_begins: Tensor
    kv_ends: Tensor


class _Groups(NamedTuple):
    """PrefixGroups as the kernel takes them."""

    member_rows: Any
    member_begins: Any
    block_tables: Any
    kv_begins: Any
    kv_ends: Any


@triton.jit(do_not_specialize=["table_stride", "num_groups"])
def prefix_group_kernel(
    query,
    cache,
    scoring,
    positions,
    groups,
    out,
    lse,
    table_stride,
    num_groups,
    sizes,
    ROW_TILE: tl.constexpr,
):
    """Program (tile of packed rows, KV head) takes the state of its rows, goes on with it and stores it again."""
    kv_head = tl.program_id(1)
    group_size: tl.constexpr = sizes.group
    group, member_begin, num_rows, row_begin = locate_tile(
        tl.program_id(0), groups.member_begins, num_groups, group_size, ROW_TILE
    )
    if row_begin >= num_rows:
        return
    packed_rows = row_begin + tl.arange(0, ROW_TILE)
    is_row = packed_rows < num_rows
    packed_rows = tl.minimum(packed_rows, num_rows - 1)
    rows = tl.load(groups.member_rows + member_begin + packed_rows // group_size).to(tl.int64)
    heads = kv_head * group_size + packed_rows % group_size
    states = rows * cache.num_heads * group_size + heads
    state_out = out + states[:, None] * sizes.value_dim
    state_lse = tl.load(lse + states)
    seen_so_far = (
        tl.maximum(state_lse * LOG2_E, LOWEST),
        tl.where(state_lse == float("-inf"), 0.0, 1.0),
        load_vectors(state_out, sizes.value_dim, sizes.value_tile),
    )
    kv_begin = tl.load(groups.kv_begins + group)
    state = attend_keys(
        seen_so_far,
        load_query(query, rows[:, None], heads, sizes),
        tl.load(positions + rows),
        scale_of(heads, scoring),
        groups.block_tables + group.to(tl.int64) * table_stride,
        kv_begin,
        (kv_begin, tl.load(groups.kv_ends + group)),
        cache,
        kv_head,
        scoring,
        sizes,
    )
    new_out, new_lse = normalise(state)
    dims = tl.arange(0, sizes.value_tile)[None, :]
    tl.store(state_out + dims, new_out, mask=is_row[:, None] & (dims < sizes.value_dim))
    tl.store(lse + states, new_lse, mask=is_row)


def attend_prefix_groups(
    query: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    levels: list[PrefixGroups],
    positions: Tensor,
    options: AttentionOptions,
) -> PartialAttention:
    """State of the packed query [T, num_heads, head_dim] over the prefixes of its groups, without sinks.

    positions [T] int32: the position of each row in its request.
    """
    num_tokens, num_heads = query.shape[:2]
    out = query.new_zeros(num_tokens, num_heads, v_cache.shape[3], dtype=torch.float32)
    lse = query.new_full((num_tokens, num_heads), float("-inf"), dtype=torch.float32)
    group_size = num_heads // k_cache.shape[1]
    launched = _launched(query.shape[2], query.dtype)
    for groups in levels:
        num_groups = len(groups.kv_begins)
        tiles = num_tiles(len(groups.member_rows), num_groups, group_size, launched["ROW_TILE"])
        prefix_group_kernel[(tiles, k_cache.shape[1])](
            **shared_arguments(query, k_cache, v_cache, options),
            positions=positions,
            groups=_Groups(
                groups.member_rows, groups.member_begins, groups.block_tables, groups.kv_begins, groups.kv_ends
            ),
            out=out,
            lse=lse,
            table_stride=groups.block_tables.stride(0),
            num_groups=num_groups,
            **launched,
        )
    return PartialAttention(out, lse)


def attend_prefix_groups_reference(
    query: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    levels: list[PrefixGroups],
    positions: Tensor,
    options: AttentionOptions,
) -> PartialAttention:
    """The same in plain torch, a group at a time."""
    num_tokens, num_heads = query.shape[:2]
    out = query.new_zeros(num_tokens, num_heads, v_cache.shape[3], dtype=torch.float32)
    lse = query.new_full((num_tokens, num_heads), float("-inf"), dtype=torch.float32)
    for groups in levels:
        begins = groups.member_begins.tolist()
        spans = zip(groups.kv_begins.tolist(), groups.kv_ends.tolist(), strict=True)
        for group, (kv_begin, kv_end) in enumerate(spans):
            rows = groups.member_rows[begins[group] : begins[group + 1]].long()
            key = gather_kv(k_cache, groups.block_tables[group], kv_end - kv_begin)
            value = gather_kv(v_cache, groups.block_tables[group], kv_end - kv_begin)
            own = attend_reference(query[rows], key, value, positions[rows], kv_begin, options)
            state = merge_states_reference(PartialAttention(out[rows], lse[rows]), own)
            out[rows], lse[rows] = state.out, state.lse
    return PartialAttention(out, lse)


def specializations() -> list[Specialization]:
    """For all head dimensions and types, without options and with all of them."""
    types = {"positions": "*i32", "groups": _Groups(*["*i32"] * 5), "out": "*fp32", "lse": "*fp32"}
    types |= {"table_stride": "i32", "num_groups": "i32"}
    return attention_specializations(prefix_group_kernel, types, _launched)
