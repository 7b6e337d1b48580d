"""Rotary position embedding, fused with the split of q, k and v and the write of k and v to the paged cache.

    x[:R] ← x[:R] · cos + rotate_half(x[:R]) · sin        rotate_half([a, b]) = [-b, a]; x[R:] stays

as transformers' apply_rotary_pos_emb. A slot is block · block_size + offset; the cache of a layer is head-major:

    slot ─▶ block ─▶ [ head 0: offset 0, 1, … │ head 1: offset 0, 1, … │ … ]
"""

# ruff: noqa: N803 (constants in capitals, as Triton has them)

import torch
import triton
import triton.language as tl
from torch import Tensor

from batchrunner.kernels.gpu.specialization import HEAD_DIMS, TYPE_NAMES, Specialization, launch_options

# Heads a program handles: a tile of [HEAD_TILE, head_dim padded to a power of two].
HEAD_TILE = 8
LAUNCHED = launch_options(num_warps=4, num_stages=1)


@triton.jit
def _cache_offsets(slot, heads, dims, num_kv_heads, block_size, head_dim):
    """Where the vectors of a slot lie in a head-major cache, in elements."""
    block, offset = slot // block_size, slot % block_size
    return ((block * num_kv_heads + heads[:, None]) * block_size + offset) * head_dim + dims[None, :]


@triton.jit
def _rotate_and_write_kv_kernel(
    qkv_ptr,
    cos_ptr,
    sin_ptr,
    slots_ptr,
    query_ptr,
    k_cache_ptr,
    v_cache_ptr,
    qkv_stride,
    cos_stride,
    sin_stride,
    num_heads,
    num_kv_heads,
    head_dim,
    rotary_dim,
    block_size,
    HEAD_TILE: tl.constexpr,
    DIM_TILE: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    heads = tl.program_id(1) * HEAD_TILE + tl.arange(0, HEAD_TILE)
    dims = tl.arange(0, DIM_TILE)
    in_head = (dims < head_dim)[None, :]
    is_query = (heads < num_heads)[:, None] & in_head
    is_key = ((heads >= num_heads) & (heads < num_heads + num_kv_heads))[:, None] & in_head
    is_value = ((heads >= num_heads + num_kv_heads) & (heads < num_heads + 2 * num_kv_heads))[:, None] & in_head

    x_ptr = qkv_ptr + token * qkv_stride + heads[:, None] * head_dim
    x = tl.load(x_ptr + dims[None, :], is_query | is_key | is_value, other=0.0)
    rotated = (dims < rotary_dim)[None, :] & (is_query | is_key)
    half = rotary_dim // 2
    partners = tl.where(dims < half, dims + half, dims - half)
    partner = tl.load(x_ptr + partners[None, :], rotated, other=0.0).to(tl.float32)
    partner = tl.where((dims < half)[None, :], -partner, partner)
    cos = tl.load(cos_ptr + token * cos_stride + dims, dims < rotary_dim, other=1.0).to(tl.float32)
    sin = tl.load(sin_ptr + token * sin_stride + dims, dims < rotary_dim, other=0.0).to(tl.float32)
    rotation = (x.to(tl.float32) * cos[None, :] + partner * sin[None, :]).to(x.dtype)
    x = tl.where(rotated, rotation, x)

    tl.store(query_ptr + (token * num_heads + heads[:, None]) * head_dim + dims[None, :], x, is_query)
    slot = tl.load(slots_ptr + token)
    key_offsets = _cache_offsets(slot, heads - num_heads, dims, num_kv_heads, block_size, head_dim)
    tl.store(k_cache_ptr + key_offsets, x, is_key)
    value_heads = heads - num_heads - num_kv_heads
    tl.store(v_cache_ptr + _cache_offsets(slot, value_heads, dims, num_kv_heads, block_size, head_dim), x, is_value)


@triton.jit
def _write_kv_kernel(
    key_ptr,
    value_ptr,
    slots_ptr,
    k_cache_ptr,
    v_cache_ptr,
    key_token_stride,
    key_head_stride,
    value_token_stride,
    value_head_stride,
    num_kv_heads,
    key_dim,
    value_dim,
    block_size,
    HEAD_TILE: tl.constexpr,
    KEY_TILE: tl.constexpr,
    VALUE_TILE: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    heads = tl.program_id(1) * HEAD_TILE + tl.arange(0, HEAD_TILE)
    in_heads = (heads < num_kv_heads)[:, None]
    slot = tl.load(slots_ptr + token)

    dims = tl.arange(0, KEY_TILE)
    mask = in_heads & (dims < key_dim)[None, :]
    key_offsets = token * key_token_stride + heads[:, None] * key_head_stride + dims[None, :]
    key = tl.load(key_ptr + key_offsets, mask)
    tl.store(k_cache_ptr + _cache_offsets(slot, heads, dims, num_kv_heads, block_size, key_dim), key, mask)

    dims = tl.arange(0, VALUE_TILE)
    mask = in_heads & (dims < value_dim)[None, :]
    value_offsets = token * value_token_stride + heads[:, None] * value_head_stride + dims[None, :]
    value = tl.load(value_ptr + value_offsets, mask)
    tl.store(v_cache_ptr + _cache_offsets(slot, heads, dims, num_kv_heads, block_size, value_dim), value, mask)


def rotate_and_write_kv(
    qkv: Tensor,
    cos: Tensor,
    sin: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slots: Tensor,
    num_heads: int,
    num_kv_heads: int,
) -> Tensor:
    """Rotate q and k of the packed qkv [T, (H + 2·Hkv)·D], write k and v to slots [T] int64, return q [T, H, D].

    cos, sin: [T, R] with R even and at most D. k_cache, v_cache: [num_blocks, Hkv, block_size, D], contiguous. One
    dtype for all but the slots; the last dim of each tensor is contiguous. Raises ValueError where dtypes or sizes
    do not fit.
    """
    num_tokens, head_dim, rotary_dim = qkv.shape[0], k_cache.shape[3], cos.shape[1]
    if any(tensor.dtype != qkv.dtype for tensor in (cos, sin, k_cache, v_cache)):
        raise ValueError(f"cos, sin and the KV cache must have the dtype of qkv, {qkv.dtype}")
    if qkv.shape[1] != (num_heads + 2 * num_kv_heads) * head_dim or v_cache.shape != k_cache.shape:
        raise ValueError(f"qkv of {qkv.shape[1]} values a token does not fit a KV cache {list(k_cache.shape)}")
    if rotary_dim % 2 or rotary_dim > head_dim:
        raise ValueError(f"the rotary dim must be even and at most the head dim {head_dim}, got {rotary_dim}")
    query = torch.empty(num_tokens, num_heads, head_dim, dtype=qkv.dtype, device=qkv.device)
    _rotate_and_write_kv_kernel[(num_tokens, triton.cdiv(num_heads + 2 * num_kv_heads, HEAD_TILE))](
        qkv,
        cos,
        sin,
        slots,
        query,
        k_cache,
        v_cache,
        qkv.stride(0),
        cos.stride(0),
        sin.stride(0),
        num_heads,
        num_kv_heads,
        head_dim,
        rotary_dim,
        k_cache.shape[2],
        HEAD_TILE=HEAD_TILE,
        DIM_TILE=triton.next_power_of_2(head_dim),
        **LAUNCHED,
    )
    return query


def write_kv(key: Tensor, value: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor) -> None:
    """Store key [T, Hkv, D] and value [T, Hkv, Dv] at slots [T] int64 of the head-major cache.

    k_cache [num_blocks, Hkv, block_size, D] and v_cache [num_blocks, Hkv, block_size, Dv] are contiguous; of key and
    value only the last dim need be. The dtypes are the cache's.
    """
    num_kv_heads, block_size = k_cache.shape[1], k_cache.shape[2]
    _write_kv_kernel[(key.shape[0], triton.cdiv(num_kv_heads, HEAD_TILE))](
        key,
        value,
        slots,
        k_cache,
        v_cache,
        key.stride(0),
        key.stride(1),
        value.stride(0),
        value.stride(1),
        num_kv_heads,
        key.shape[2],
        value.shape[2],
        block_size,
        HEAD_TILE=HEAD_TILE,
        KEY_TILE=triton.next_power_of_2(key.shape[2]),
        VALUE_TILE=triton.next_power_of_2(value.shape[2]),
        **LAUNCHED,
    )


def specializations() -> list[Specialization]:
    """Each kernel in each dtype and each padded head dim; head dims 80 and 96 share the tile of 128."""
    found = []
    for dtype in TYPE_NAMES.values():
        for tile in sorted({triton.next_power_of_2(head_dim) for head_dim in HEAD_DIMS}):
            for kernel, name, tiles in (
                (_rotate_and_write_kv_kernel, "rotate_and_write_kv", {"DIM_TILE": tile}),
                (_write_kv_kernel, "write_kv", {"KEY_TILE": tile, "VALUE_TILE": tile}),
            ):
                constants: dict[str, object] = {"HEAD_TILE": HEAD_TILE, **tiles}
                signature = {arg: f"*{dtype}" if arg.endswith("_ptr") else "i32" for arg in kernel.arg_names}
                signature |= {"slots_ptr": "*i64", **dict.fromkeys(constants, "constexpr")}
                label = f"{name} {dtype} {tile}"
                found.append(Specialization(kernel, signature, constants, LAUNCHED, label))
    return found
