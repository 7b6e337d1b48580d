"""Rotary embedding and the write of KV on the GPU against plain torch, transformers and a loop over slots."""

import pytest
import torch
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from batchrunner.kernels.gpu.rotary_kv import rotate_and_write_kv, write_kv
from batchrunner.kernels.torch_kernels import TorchKernels

PLAIN = TorchKernels(torch.device("cpu"))
# Both compute in float32 and round once (Triton's interpreter cuts off where a device rounds to bfloat16):
# one unit in the last place; of a difference that nearly cancels, the absolute bound holds.
TOLERANCE = {
    torch.float32: {"rtol": 1e-5, "atol": 1e-6},
    torch.float16: {"rtol": 2**-10, "atol": 1e-5},
    torch.bfloat16: {"rtol": 2**-7, "atol": 1e-5},
}
NUM_TOKENS = 6
# (heads, KV heads, head dim, rotary dim, block size); 11 + 2 · 3 heads take more than two tiles of heads
LAYOUTS = [(3, 1, 16, 16, 1), (4, 2, 80, 80, 7), (11, 3, 64, 16, 16), (2, 2, 10, 6, 5), (5, 5, 96, 48, 32)]


def rotary_embedding(rotary_dim: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    angles = torch.randint(0, 500, (NUM_TOKENS, 1)) / 10_000 ** (torch.arange(rotary_dim // 2) * 2 / rotary_dim)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def random_slots(num_blocks: int, block_size: int) -> torch.Tensor:
    return torch.randperm(num_blocks * block_size)[:NUM_TOKENS]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("heads", "kv_heads", "dim", "rotary_dim", "block_size"), LAYOUTS)
def test_rotation_and_write_equal_plain_torch(
    heads: int, kv_heads: int, dim: int, rotary_dim: int, block_size: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(dim)
    qkv = torch.randn(NUM_TOKENS, (heads + 2 * kv_heads) * dim).to(dtype)
    cos, sin = rotary_embedding(rotary_dim, dtype)
    k_cache, v_cache = torch.randn(2, 9, kv_heads, block_size, dim).to(dtype)
    expected_k, expected_v = k_cache.float(), v_cache.float()
    slots = random_slots(9, block_size)
    query = rotate_and_write_kv(qkv, cos, sin, k_cache, v_cache, slots, heads, kv_heads)
    wide = (qkv.float(), cos.float(), sin.float())
    expected = PLAIN.rotate_and_write_kv(*wide, expected_k, expected_v, slots, heads)
    torch.testing.assert_close(query, expected.to(dtype), **TOLERANCE[dtype])
    torch.testing.assert_close(k_cache, expected_k.to(dtype), **TOLERANCE[dtype])
    assert torch.equal(v_cache, expected_v.to(dtype))


def test_rotation_is_that_of_transformers_and_slots_are_head_major() -> None:
    torch.manual_seed(0)
    heads, kv_heads, dim, block_size = 4, 2, 24, 5
    qkv = torch.randn(NUM_TOKENS, (heads + 2 * kv_heads) * dim)
    cos, sin = rotary_embedding(dim, torch.float32)
    k_cache, v_cache = torch.full((2, 7, kv_heads, block_size, dim), 9.0)
    slots = random_slots(7, block_size)
    out = rotate_and_write_kv(qkv, cos, sin, k_cache, v_cache, slots, heads, kv_heads)

    query, key, value = qkv.view(NUM_TOKENS, -1, dim).split([heads, kv_heads, kv_heads], dim=1)
    query, key = apply_rotary_pos_emb(query.transpose(0, 1)[None], key.transpose(0, 1)[None], cos[None], sin[None])
    torch.testing.assert_close(out, query[0].transpose(0, 1), rtol=1e-5, atol=1e-6)
    for token, slot in enumerate(slots.tolist()):
        for head in range(kv_heads):
            place = (slot // block_size, head, slot % block_size)
            torch.testing.assert_close(k_cache[place], key[0, head, token], rtol=1e-5, atol=1e-6)
            assert torch.equal(v_cache[place], value[token, head])
    written = NUM_TOKENS * kv_heads * dim
    assert int((k_cache != 9.0).sum()) == int((v_cache != 9.0).sum()) == written


def test_qkv_and_angles_may_be_rows_of_wider_tensors() -> None:
    torch.manual_seed(1)
    wide_qkv, wide_angles = torch.randn(NUM_TOKENS, 100), torch.randn(NUM_TOKENS, 30)
    arguments = (wide_qkv[:, 7:55], wide_angles[:, :6], wide_angles[:, 10:16])
    k_cache, v_cache = torch.zeros(2, 4, 2, 3, 8)
    expected_k, expected_v = torch.zeros(2, 4, 2, 3, 8)
    slots = random_slots(4, 3)
    query = rotate_and_write_kv(*arguments, k_cache, v_cache, slots, 2, 2)
    expected = PLAIN.rotate_and_write_kv(*arguments, expected_k, expected_v, slots, 2)
    torch.testing.assert_close(query, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(k_cache, expected_k, rtol=1e-5, atol=1e-6)
    assert torch.equal(v_cache, expected_v)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("kv_heads", "key_dim", "value_dim", "block_size"), [(1, 16, 16, 1), (3, 80, 64, 7), (10, 10, 33, 16)]
)
def test_write_kv_is_exact(kv_heads: int, key_dim: int, value_dim: int, block_size: int, dtype: torch.dtype) -> None:
    torch.manual_seed(key_dim)
    # As transformers hands them over: heads before tokens.
    key = torch.randn(kv_heads, NUM_TOKENS, key_dim).to(dtype).transpose(0, 1)
    value = torch.randn(kv_heads, NUM_TOKENS, value_dim).to(dtype).transpose(0, 1)
    k_cache, v_cache = (torch.randn(8, kv_heads, block_size, dim).to(dtype) for dim in (key_dim, value_dim))
    expected_k, expected_v = k_cache.clone(), v_cache.clone()
    slots = random_slots(8, block_size)
    write_kv(key, value, k_cache, v_cache, slots)
    PLAIN.write_kv(key, value, expected_k, expected_v, slots)
    assert torch.equal(k_cache, expected_k) and torch.equal(v_cache, expected_v)
    token, slot = 2, int(slots[2])
    assert torch.equal(v_cache[slot // block_size, :, slot % block_size], value[token])


def test_what_does_not_fit_is_refused() -> None:
    cos, caches, slots = torch.empty(1, 4), torch.empty(2, 1, 1, 1, 8), torch.zeros(1, dtype=torch.int64)
    with pytest.raises(ValueError, match="does not fit"):
        rotate_and_write_kv(torch.empty(1, 24), cos, cos, *caches, slots, 2, 1)
    with pytest.raises(ValueError, match="dtype of qkv"):
        rotate_and_write_kv(torch.empty(1, 24, dtype=torch.float16), cos, cos, *caches, slots, 1, 1)
    with pytest.raises(ValueError, match="even and at most the head dim 8, got 10"):
        rotate_and_write_kv(torch.empty(1, 24), torch.empty(1, 10), torch.empty(1, 10), *caches, slots, 1, 1)
