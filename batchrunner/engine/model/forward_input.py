"""The Schedule as tensors: what the model sees of one step."""

from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from batchrunner.engine.kv.slot_copies import SlotCopies
from batchrunner.engine.model.prefix_groups import GroupRule, group_by_prefix
from batchrunner.engine.scheduling.schedule import Schedule
from batchrunner.kernels.attention_work import AttentionWork, Segment


@dataclass(frozen=True, slots=True)
class ForwardInput:
    """T packed tokens of all scheduled requests, without padding.

    input_ids, positions, slots: [T]. logit_rows: [S], the rows whose logits are sampled. copies: between slots, in
    every layer, once its KV is written; None: none.
    """

    input_ids: Tensor
    positions: Tensor
    slots: Tensor
    logit_rows: Tensor
    work: AttentionWork
    copies: SlotCopies | None

    @classmethod
    def build(cls, schedule: Schedule, block_size: int, rule: GroupRule, device: torch.device) -> "ForwardInput":
        input_ids: list[int] = []
        positions: list[range] = []
        blocks: list[int] = []
        logit_rows: list[int] = []
        segments: list[Segment] = []
        for item in schedule.scheduled:
            table = item.request.block_table
            segments.append(Segment(len(input_ids), item.num_new_tokens, item.end, table))
            input_ids += item.request.token_ids[item.start : item.end]
            positions.append(range(item.start, item.end))
            blocks += [table[position // block_size] for position in positions[-1]]
            if item.samples:
                logit_rows.append(len(input_ids) - 1)
        flat = np.fromiter(chain.from_iterable(positions), np.int64, len(input_ids))
        slots = np.array(blocks, np.int64) * block_size + flat % block_size
        return cls(
            input_ids=torch.tensor(input_ids, device=device),
            positions=torch.from_numpy(flat).to(device),
            slots=torch.from_numpy(slots).to(device),
            logit_rows=torch.tensor(logit_rows, dtype=torch.int64, device=device),
            work=group_by_prefix(segments, block_size, rule),
            copies=SlotCopies.build(schedule.copies, block_size, device),
        )
