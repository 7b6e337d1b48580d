"""One forward pass over a cache of its own, to see what goes through a model's modules."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from batchrunner.engine.attention import LayerShape, PagedAttention, PagedKV, attention_by
from batchrunner.kernels.attention_work import AttentionWork
from batchrunner.kernels.interface import Kernels


class DryRun:
    """A loaded model with the KV of one step. slots, positions and token_ids are of the work's tokens, in its order."""

    def __init__(
        self,
        model: Any,
        layers: Sequence[LayerShape],
        kernels: Kernels,
        work: AttentionWork,
        slots: Sequence[int],
        block_size: int,
    ) -> None:
        def cache(num_heads: int, dim: int) -> Tensor:
            shape = (max(slots) // block_size + 1, num_heads, block_size, dim)
            return torch.zeros(shape, dtype=model.dtype, device=model.device)

        self._model = model
        plan = kernels.plan(work, block_size)
        self.attention = PagedAttention(
            kernels, PagedKV.build(layers, cache), plan, torch.tensor(slots, device=model.device)
        )

    def forward(self, token_ids: Sequence[int], positions: Sequence[int]) -> Tensor:
        """The logits [T, vocabulary] of the tokens."""
        with attention_by(self.attention):
            output = self._model(
                input_ids=torch.tensor([token_ids], device=self._model.device),
                position_ids=torch.tensor([positions], device=self._model.device),
                use_cache=False,
            )
        logits: Tensor = output.logits[0]
        return logits
