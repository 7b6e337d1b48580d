"""Online softmax over a paged KV cache: what the attention kernels share.

A row keeps m = max s, l = Σ exp(s - m) and acc = Σ exp(s - m) · v over the scores s it has seen. A tile of keys gives

    m' = max(m, max s)      l' = l · exp(m - m') + Σ exp(s - m')      acc' = acc · exp(m - m') + Σ exp(s - m') · v

(Milakov and Gimelshein, arXiv 1805.02867), and in the end out = acc / l, lse = m + log l. In the kernels m and s are in
base 2: log2(e) is folded into the scale. A cache of one layer is [num_blocks, num_kv_heads, block_size, dim].
"""

# ruff: noqa: N803 (constants in capitals, as Triton has them)

import itertools
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from batchrunner.kernels.attention_work import AttentionOptions
from batchrunner.kernels.gpu.merge_states import PartialAttention
from batchrunner.kernels.gpu.specialization import HEAD_DIMS, TYPE_NAMES, Specialization

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)
# The maximum of a row that has seen nothing: below every score, but finite, as -inf - -inf is no number.
LOWEST = tl.constexpr(-1e30)


def shared_arguments(query: Tensor, k_cache: Tensor, v_cache: Tensor, options: AttentionOptions) -> dict[str, Any]:
    """The arguments that every attention kernel takes. An option that is off is None: it is compiled away."""
    assert query.stride(-1) == 1 and k_cache.is_contiguous() and v_cache.is_contiguous()
    num_kv_heads, block_size, head_dim = k_cache.shape[1:]
    return {
        "query": query,
        "k_cache": k_cache,
        "v_cache": v_cache,
        "query_token_stride": query.stride(0),
        "query_head_stride": query.stride(1),
        "num_kv_heads": num_kv_heads,
        "scale": options.scale,
        "window": options.window or None,
        "softcap": options.softcap or None,
        "head_scales": options.head_scales,
        "GROUP_SIZE": query.shape[1] // num_kv_heads,
        "BLOCK_SIZE": block_size,
        **_tiles(head_dim, v_cache.shape[3], query.dtype),
    }


def _tiles(head_dim: int, value_dim: int, dtype: torch.dtype) -> dict[str, int]:
    # Tensor cores take tiles of at least 16 by 16. Larger tiles of keys would spill registers.
    head_tile = max(16, triton.next_power_of_2(head_dim))
    return {
        "HEAD_DIM": head_dim,
        "VALUE_DIM": value_dim,
        "HEAD_TILE": head_tile,
        "VALUE_TILE": max(16, triton.next_power_of_2(value_dim)),
        "KEY_TILE": 32 if head_tile <= 128 and dtype.itemsize == 2 else 16,
    }


def attention_specializations(
    kernel: Any, types: dict[str, str], launched_for: Callable[[int, torch.dtype], dict[str, int]]
) -> list[Specialization]:
    """One attention kernel for all head dimensions and types, with all options off and on.

    types: those of the kernel's arguments that shared_arguments doesn't give. launched_for: head dimension and type →
    the constants that it doesn't give, and the launch_options.
    """
    found = []
    for head_dim, (dtype, name), has_options in itertools.product(HEAD_DIMS, TYPE_NAMES.items(), (False, True)):
        known = dict.fromkeys(("query", "k_cache", "v_cache", "out"), f"*{name}") | types
        known |= dict.fromkeys(("query_token_stride", "query_head_stride", "num_kv_heads"), "i32") | {"scale": "fp32"}
        fixed: dict[str, object] = {"GROUP_SIZE": 4, "BLOCK_SIZE": 16, **_tiles(head_dim, head_dim, dtype)}
        launched = launched_for(head_dim, dtype)
        options = {option: launched[option] for option in launched if option not in kernel.arg_names}
        fixed |= {constant: launched[constant] for constant in launched if constant in kernel.arg_names}
        if has_options:
            known |= {"window": "i32", "softcap": "fp32"}
            known |= {"head_scales": f"*{name}", "sinks": f"*{name}"}
        else:
            fixed |= dict.fromkeys({"window", "softcap", "head_scales", "sinks"} & set(kernel.arg_names))
        signature = {arg: "constexpr" if arg in fixed else known[arg] for arg in kernel.arg_names}
        label = f"{kernel.__name__} {name} {head_dim} {'all options' if has_options else 'no options'}"
        found.append(Specialization(kernel, signature, fixed, options, label))
    return found


@triton.jit
def load_vectors(pointers, DIM: tl.constexpr, TILE: tl.constexpr):
    """Vectors of dimension DIM at pointers [M, 1], as [M, TILE] padded with zeros."""
    dims = tl.arange(0, TILE)[None, :]
    if DIM == TILE:
        return tl.load(pointers + dims)
    return tl.load(pointers + dims, mask=dims < DIM, other=0.0)


@triton.jit
def attend_keys(
    running_max,
    running_sum,
    acc,
    query,
    positions,
    row_scale,
    block_table,
    table_begin,
    key_begin,
    key_end,
    k_cache,
    v_cache,
    kv_head,
    num_kv_heads,
    window,
    softcap,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    HEAD_TILE: tl.constexpr,
    VALUE_TILE: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    KEY_TILE: tl.constexpr,
):
    """Take rows through the keys at positions key_begin..key_end-1 that they see; returns the three running values.

    query [M, HEAD_TILE], positions [M], row_scale a scalar or [M, 1]; the first block of the table begins at position
    table_begin.
    """
    # The products become scores in base 2; under a soft cap, the 2x of its tanh, in base 2.
    row_scale *= LOG2_E if softcap is None else 2 * LOG2_E / softcap
    row_ends = tl.minimum(positions + 1, key_end)
    # Tiles that no row sees are skipped; the others always begin at the same keys, so that the order of the sums is
    # a matter of the position alone.
    first = key_begin
    if window is not None:
        row_begins = positions - window + 1
        first += tl.maximum(tl.min(row_begins) - key_begin, 0) // KEY_TILE * KEY_TILE
    for tile_begin in range(first, tl.max(row_ends), KEY_TILE):
        keys = tile_begin + tl.arange(0, KEY_TILE)
        # Beyond the end the last key is loaded again, at weight 0: free memory may hold what is not a number.
        offsets = tl.minimum(keys, key_end - 1) - table_begin
        blocks = tl.load(block_table + offsets // BLOCK_SIZE).to(tl.int64)
        slots = ((blocks * num_kv_heads + kv_head) * BLOCK_SIZE + offsets % BLOCK_SIZE)[:, None]

        key = load_vectors(k_cache + slots * HEAD_DIM, HEAD_DIM, HEAD_TILE)
        scores = tl.dot(query, tl.trans(key), input_precision="ieee") * row_scale
        if softcap is not None:
            # tanh x = 1 - 2 / (exp(2x) + 1), and the exponential must not overflow.
            scores = softcap * LOG2_E * (1 - 2 / (tl.exp2(tl.minimum(scores, 64.0)) + 1))
        visible = keys[None, :] < row_ends[:, None]
        if window is not None:
            visible &= keys[None, :] >= row_begins[:, None]
        scores = tl.where(visible, scores, float("-inf"))

        new_max = tl.maximum(running_max, tl.max(scores, axis=1))
        weights = tl.exp2(scores - new_max[:, None])
        decay = tl.exp2(running_max - new_max)
        running_max = new_max
        # Fused, or some forms of the kernels would spill registers.
        running_sum = tl.fma(running_sum, decay, tl.sum(weights, axis=1))
        value = load_vectors(v_cache + slots * VALUE_DIM, VALUE_DIM, VALUE_TILE)
        acc = tl.dot(weights.to(value.dtype), value, acc * decay[:, None], input_precision="ieee")
    return running_max, running_sum, acc


@triton.jit
def normalise(running_max, running_sum, acc):
    """out [M, dim] and lse [M] of a PartialAttention from the running values."""
    total = tl.where(running_sum > 0, running_sum, 1.0)
    lse = (running_max + tl.log2(total)) * LN_2
    return acc / total[:, None], tl.where(running_sum > 0, lse, float("-inf"))


def gather_kv(cache: Tensor, block_table: Tensor, num_tokens: int) -> Tensor:
    """The first num_tokens tokens of a block table, [num_tokens, num_kv_heads, dim] float32."""
    return cache[block_table.long()].transpose(1, 2).flatten(0, 1)[:num_tokens].float()


def attend_reference(
    query: Tensor, key: Tensor, value: Tensor, positions: Tensor, key_begin: int, options: AttentionOptions
) -> PartialAttention:
    """The same in plain torch, without sinks: the state of rows [T, num_heads, dim] after the keys they see.

    positions [T]; key and value [num_keys, num_kv_heads, dim] float32, at positions from key_begin on.
    """
    keys = key_begin + torch.arange(len(key), device=query.device)[None, :]
    visible = keys <= positions[:, None]
    if options.window:
        visible &= keys > positions[:, None] - options.window
    group_size = query.shape[1] // key.shape[1]
    scores = torch.einsum("thd,nhd->htn", query.float(), key.repeat_interleave(group_size, 1)) * options.scale
    if options.head_scales is not None:
        scores *= options.head_scales.float()[:, None, None]
    if options.softcap:
        scores = options.softcap * torch.tanh(scores / options.softcap)
    scores = scores.masked_fill(~visible, float("-inf"))
    lse = torch.logsumexp(scores, dim=-1)
    weights = torch.exp(scores - lse.masked_fill(lse == float("-inf"), 0.0)[..., None])
    return PartialAttention(torch.einsum("htn,nhd->thd", weights, value.repeat_interleave(group_size, 1)), lse.T)
