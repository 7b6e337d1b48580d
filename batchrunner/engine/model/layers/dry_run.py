"""One forward pass over a cache of its own, to see what goes through a model's modules."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from batchrunner.engine.kv.paged_kv import LayerShape, PagedKV
from batchrunner.engine.model.layers.attention import PagedAttention, attention_by
from batchrunner.kernels.attention_work import AttentionWork, Segment
from batchrunner.kernels.interface import Kernels


@dataclass(frozen=True, slots=True)
class DryWork:
    """positions and slots [T]: where each token stands in its request, and where its KV goes."""

    attention: AttentionWork
    positions: Sequence[int]
    slots: Sequence[int]
    block_size: int

    @classmethod
    def one_prompt(cls, num_tokens: int, block_size: int = 16) -> "DryWork":
        tokens = range(num_tokens)
        segment = Segment(0, num_tokens, num_tokens, range(-(-num_tokens // block_size)))
        return cls(AttentionWork([segment]), tokens, tokens, block_size)


# A prompt of six tokens, and the fourth token of another request.
SMALL = DryWork(
    AttentionWork([Segment(0, 6, 6, [0, 1]), Segment(6, 1, 4, [2])]),
    positions=[0, 1, 2, 3, 4, 5, 3],
    slots=[0, 1, 2, 3, 4, 5, 11],
    block_size=4,
)


class DryRun:
    """A loaded model, and the attention of one step."""

    def __init__(self, model: Any, layers: Sequence[LayerShape], kernels: Kernels, work: DryWork = SMALL) -> None:
        def cache(num_heads: int, dim: int) -> Tensor:
            shape = (max(work.slots) // work.block_size + 1, num_heads, work.block_size, dim)
            return torch.zeros(shape, dtype=model.dtype, device=model.device)

        self._model = model
        self._work = work
        plan = kernels.plan(work.attention, work.block_size)
        slots = torch.tensor(work.slots, device=model.device)
        self.attention = PagedAttention(kernels, PagedKV.build(layers, cache), plan, slots)

    def forward(self, token_ids: Sequence[int] | None = None) -> Tensor:
        """The logits [T, vocabulary] of the tokens; None: of any."""
        if token_ids is None:
            vocabulary = self._model.get_input_embeddings().num_embeddings
            token_ids = [7 * index % vocabulary for index in range(len(self._work.positions))]
        with attention_by(self.attention):
            output = self._model(
                input_ids=torch.tensor([token_ids], device=self._model.device),
                position_ids=torch.tensor([self._work.positions], device=self._model.device),
                use_cache=False,
            )
        logits: Tensor = output.logits[0]
        return logits
