"""Online softmax over a paged KV cache: what the attention kernels share.

A row keeps m = max s, l = Σ exp(s - m) and acc = Σ exp(s - m) · v over the scores s it has seen. A tile of keys gives

    m' = max(m, max s)      l' = l · exp(m - m') + Σ exp(s - m')      acc' = acc · exp(m - m') + Σ exp(s - m') · v

(Milakov and Gimelshein, arXiv 1805.02867), and in the end out = acc / l, lse = m + log l. In the kernels m and s are in
base 2: log2(e) is folded into the scale. A cache of one layer is [num_blocks, num_kv_heads, block_size, dim].
"""

# ruff: noqa: N803 (constants in capitals, as Triton has them)

import torch
import triton
import triton.language as tl
from torch import Tensor

from batchrunner.kernels.attention_work import AttentionOptions
from batchrunner.kernels.gpu.merge_states import PartialAttention

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)
# The maximum of a row that has seen nothing: below every score, but finite, as -inf - -inf is no number.
LOWEST = tl.constexpr(-1e30)


@triton.jit
def load_vectors(pointers, DIM: tl.constexpr, TILE: tl.constexpr):
    """Vectors of dimension DIM at pointers [M, 1], as [M, TILE] padded with zeros."""
    dims = tl.arange(0, TILE)[None, :]
    if DIM == TILE:
        return tl.load(pointers + dims)
    return tl.load(pointers + dims, mask=dims < DIM, other=0.0)


@triton.jit
def attend_keys(state, query, positions, row_scale, block_table, table_begin, keys, cache, kv_head, scoring, sizes):
    """Take rows through the keys that they see, at positions from begin up to end of keys = (begin, end).

    state: the three running values, and so is what is returned. query [M, head_tile], positions [M], row_scale a
    scalar or [M, 1]; the first block of block_table begins at position table_begin. The rest: attention_arguments.py.
    """
    running_max, running_sum, acc = state
    key_begin, key_end = keys
    window, softcap = scoring.window, scoring.softcap
    key_tile: tl.constexpr = sizes.key_tile
    # The products become scores in base 2; under a soft cap, the 2x of its tanh, in base 2.
    row_scale *= LOG2_E if softcap is None else 2 * LOG2_E / softcap
    row_ends = tl.minimum(positions + 1, key_end)
    # Tiles that no row sees are skipped; the others always begin at the same keys, so that the order of the sums is
    # a matter of the position alone.
    first = key_begin
    if window is not None:
        row_begins = positions - window + 1
        first += tl.maximum(tl.min(row_begins) - key_begin, 0) // key_tile * key_tile
    for tile_begin in range(first, tl.max(row_ends), key_tile):
        seen = tile_begin + tl.arange(0, key_tile)
        # Beyond the end the last key is loaded again, at weight 0: free memory may hold what is not a number.
        offsets = tl.minimum(seen, key_end - 1) - table_begin
        blocks = tl.load(block_table + offsets // sizes.block).to(tl.int64)
        slots = ((blocks * cache.num_heads + kv_head) * sizes.block + offsets % sizes.block)[:, None]

        key = load_vectors(cache.k + slots * sizes.head_dim, sizes.head_dim, sizes.head_tile)
        scores = tl.dot(query, tl.trans(key), input_precision="ieee") * row_scale
        if softcap is not None:
            # tanh x = 1 - 2 / (exp(2x) + 1), and the exponential must not overflow.
            scores = softcap * LOG2_E * (1 - 2 / (tl.exp2(tl.minimum(scores, 64.0)) + 1))
        visible = seen[None, :] < row_ends[:, None]
        if window is not None:
            visible &= seen[None, :] >= row_begins[:, None]
        scores = tl.where(visible, scores, float("-inf"))

        new_max = tl.maximum(running_max, tl.max(scores, axis=1))
        weights = tl.exp2(scores - new_max[:, None])
        decay = tl.exp2(running_max - new_max)
        running_max = new_max
        # Fused, or some forms of the kernels would spill registers.
        running_sum = tl.fma(running_sum, decay, tl.sum(weights, axis=1))
        value = load_vectors(cache.v + slots * sizes.value_dim, sizes.value_dim, sizes.value_tile)
        acc = tl.dot(weights.to(value.dtype), value, acc * decay[:, None], input_precision="ieee")
    return running_max, running_sum, acc


@triton.jit
def scale_of(heads, scoring):
    """The factor of rows of these heads [M]: a scalar, or [M, 1]."""
    row_scale = scoring.scale
    if scoring.head_scales is not None:
        row_scale = scoring.scale * tl.load(scoring.head_scales + heads).to(tl.float32)[:, None]
    return row_scale


@triton.jit
def load_query(query, rows, heads, sizes):
    """The vectors of these rows and heads, [M] each, as [M, head_tile]."""
    pointers = query.rows + rows * query.token_stride + heads[:, None] * query.head_stride
    return load_vectors(pointers, sizes.head_dim, sizes.head_tile)


@triton.jit
def normalise(state):
    """out [M, dim] and lse [M] of a PartialAttention from the running values."""
    running_max, running_sum, acc = state
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
