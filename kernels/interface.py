"""What every set of kernels offers; the engine knows nothing else of them.

torch_kernels.py has them in plain torch: the reference, and what runs where nothing faster does. cpu/ has them in C,
gpu/ in Triton.
"""

from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from batchrunner.kernels.attention_work import AttentionOptions, AttentionWork
from batchrunner.kernels.sampling_work import SamplingWork


class Kernels(Protocol):
    """A layer's cache is [num_blocks, num_kv_heads, block_size, head_dim], for keys and for values.

    slots [T] say where a token's KV lies: block · block_size + offset in the block.
    """

    name: str

    def plan(self, work: AttentionWork, block_size: int) -> Any:
        """The work as attend() takes it; made once a step and used by all layers."""

    def attend(self, query: Tensor, k_cache: Tensor, v_cache: Tensor, plan: Any, options: AttentionOptions) -> Tensor:
        """Attention of query [T, num_heads, head_dim] over the cache → [T, num_heads, head_dim of v]."""

    def write_kv(self, key: Tensor, value: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor) -> None:
        """Store key and value [T, num_kv_heads, head_dim]."""

    def copy_blocks(self, cache: Tensor, sources: Tensor, targets: Tensor) -> None:
        """Copy blocks inside the cache. All sources are read before any target is written: a block may be both."""

    def rotate_and_write_kv(
        self, qkv: Tensor, cos: Tensor, sin: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor, num_heads: int
    ) -> Tensor:
        """Rotary embedding (arXiv 2104.09864, halves rotated) of queries and keys; keys and values are stored.

        qkv [T, (num_heads + 2 · num_kv_heads) · head_dim], may be overwritten; cos, sin [T, rotary_dim]. Returns the
        queries [T, num_heads, head_dim].
        """

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """weight · x / sqrt(mean(x²) + eps) for each row of x [T, N] (arXiv 1910.07467)."""

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
        """residual += x, in place; returns rms_norm(residual)."""

    def swiglu(self, gate_up: Tensor) -> Tensor:
        """silu(gate) · up of gate_up [T, 2 · N], gate first → [T, N] (arXiv 2002.05202)."""


@runtime_checkable
class SamplingKernels(Kernels, Protocol):
    """Kernels that choose tokens too. Beside others the engine's sampler does it, in plain torch."""

    def sample(self, logits: Tensor, work: SamplingWork) -> Tensor:
        """The next token id [S] int64 of each row of logits [S, vocabulary]."""
