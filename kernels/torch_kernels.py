"""The kernels in plain torch: what every other version must equal."""

import torch
from torch import Tensor

from batchrunner.kernels.attention_work import AttentionOptions, AttentionWork
from batchrunner.kernels.paged_attention import PagedPlan, paged_attention, write_kv


class TorchKernels:
    name = "torch"

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def plan(self, work: AttentionWork, block_size: int) -> PagedPlan:
        """Groups are not used: each request attends all of its blocks."""
        return PagedPlan.build(work, self._device)

    def attend(
        self, query: Tensor, k_cache: Tensor, v_cache: Tensor, plan: PagedPlan, options: AttentionOptions
    ) -> Tensor:
        return paged_attention(query, k_cache, v_cache, plan, options)

    def write_kv(self, key: Tensor, value: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor) -> None:
        write_kv(key, value, k_cache, v_cache, slots)

    def copy_blocks(self, cache: Tensor, sources: Tensor, targets: Tensor) -> None:
        cache[targets] = cache[sources]

    def rotate_and_write_kv(
        self, qkv: Tensor, cos: Tensor, sin: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor, num_heads: int
    ) -> Tensor:
        num_kv_heads, head_dim = k_cache.shape[1], k_cache.shape[3]
        heads = qkv.view(qkv.shape[0], -1, head_dim)
        query, key, value = torch.split(heads, [num_heads, num_kv_heads, num_kv_heads], dim=1)
        write_kv(_rotate(key, cos, sin), value, k_cache, v_cache, slots)
        return _rotate(query, cos, sin)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        wide = x.float()
        return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
        residual += x
        return self.rms_norm(residual, weight, eps)

    def swiglu(self, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return torch.nn.functional.silu(gate) * up


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [T, heads, head_dim]; where cos and sin are shorter than head_dim, the rest of x stays as it is."""
    turned, rest = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
    first, second = turned.chunk(2, dim=-1)
    half = torch.cat([-second, first], dim=-1)
    return torch.cat([turned * cos[:, None] + half * sin[:, None], rest], dim=-1)
