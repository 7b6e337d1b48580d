"""The Schedule as tensors: what the model sees of one step."""

from dataclasses import dataclass

import torch
from torch import Tensor

from batchrunner.engine.schedule import Schedule
from batchrunner.kernels.paged_attention import DecodeGroup, Segment, group_decodes


@dataclass(frozen=True, slots=True)
class ForwardInput:
    """T packed tokens of all scheduled requests, without padding.

    input_ids, positions, slots: [T]. logit_rows: [S], the rows whose logits are sampled. copy_sources and
    copy_targets: blocks to copy before anything is written.
    """

    input_ids: Tensor
    positions: Tensor
    slots: Tensor
    logit_rows: Tensor
    copy_sources: Tensor
    copy_targets: Tensor
    chunks: list[Segment]
    decodes: list[DecodeGroup]

    @classmethod
    def build(cls, schedule: Schedule, block_size: int, device: torch.device) -> "ForwardInput":
        input_ids: list[int] = []
        positions: list[Tensor] = []
        slots: list[Tensor] = []
        logit_rows: list[int] = []
        chunks: list[Segment] = []
        decodes: list[Segment] = []
        for item in schedule.scheduled:
            request = item.request
            block_table = torch.tensor(request.block_table)
            span = torch.arange(item.start, item.end)
            if item.num_new_tokens == 1:
                decodes.append(Segment(len(input_ids), 1, item.end, block_table))
            else:
                chunks.append(Segment(len(input_ids), item.num_new_tokens, item.end, block_table.to(device)))
            input_ids += request.token_ids[item.start : item.end]
            positions.append(span)
            slots.append(block_table[span // block_size] * block_size + span % block_size)
            if item.samples:
                logit_rows.append(len(input_ids) - 1)
        return cls(
            input_ids=torch.tensor(input_ids, device=device),
            positions=torch.cat(positions).to(device),
            slots=torch.cat(slots).to(device),
            logit_rows=torch.tensor(logit_rows, dtype=torch.int64, device=device),
            copy_sources=torch.tensor([copy.source for copy in schedule.copies], dtype=torch.int64, device=device),
            copy_targets=torch.tensor([copy.target for copy in schedule.copies], dtype=torch.int64, device=device),
            chunks=chunks,
            decodes=group_decodes(decodes, device),
        )
