"""KV that one step computes for one request and that the beginning of another one's block needs, too."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from batchrunner.engine.kv.places import InnerCopy


@dataclass(frozen=True, slots=True)
class SlotCopies:
    """blocks and offsets [C] of the tokens to read, and of those to write; nothing that is written is read."""

    source_blocks: Tensor
    source_offsets: Tensor
    target_blocks: Tensor
    target_offsets: Tensor

    @classmethod
    def build(cls, copies: Sequence[InnerCopy], block_size: int, device: torch.device) -> Self | None:
        """None for no copies. A copy of a copy is read where the first one is: all are made at once."""
        source_of: dict[int, int] = {}  # slot → slot
        for copy in copies:
            for offset in range(copy.num_tokens):
                source = copy.source_block * block_size + offset
                source_of[copy.target_block * block_size + offset] = source_of.get(source, source)
        if not source_of:
            return None
        slots = np.array([list(source_of.values()), list(source_of)])
        blocks, offsets = (torch.from_numpy(part).to(device) for part in np.divmod(slots, block_size))
        return cls(blocks[0], offsets[0], blocks[1], offsets[1])

    def make(self, cache: Tensor) -> None:
        """cache: [num_blocks, num_kv_heads, block_size, head_dim]."""
        cache[self.target_blocks, :, self.target_offsets] = cache[self.source_blocks, :, self.source_offsets]
