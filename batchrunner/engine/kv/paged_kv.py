"""The KV memory as tensors, one for the keys of each layer and one for the values."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from batchrunner.kernels.attention_work import AttentionOptions


@dataclass(frozen=True, slots=True)
class LayerShape:
    num_heads: int
    num_kv_heads: int
    key_dim: int
    value_dim: int
    options: AttentionOptions


@dataclass(slots=True)
class PagedKV:
    """The KV cache of all layers; each layer's is [num_blocks, num_kv_heads, block_size, head_dim], twice."""

    keys: list[Tensor]
    values: list[Tensor]

    @classmethod
    def build(cls, layers: Sequence[LayerShape], cache: Callable[[int, int], Tensor]) -> "PagedKV":
        """cache: num_kv_heads and head_dim → the cache of one layer, for keys or for values."""
        return cls(
            keys=[cache(layer.num_kv_heads, layer.key_dim) for layer in layers],
            values=[cache(layer.num_kv_heads, layer.value_dim) for layer in layers],
        )

    @property
    def block_size(self) -> int:
        return self.keys[0].shape[2]
