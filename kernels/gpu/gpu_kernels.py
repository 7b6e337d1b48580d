"""The kernels in Triton: what interface.py asks for, on a GPU. Each file beside this one says what its kernels do."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from batchrunner.kernels.attention_work import AttentionOptions, AttentionWork, PrefixGroup, Segment
from batchrunner.kernels.gpu.block_copy import copy_blocks
from batchrunner.kernels.gpu.merge_states import SPLIT_SIZE
from batchrunner.kernels.gpu.paged_chunks import Chunks, paged_chunks
from batchrunner.kernels.gpu.paged_decode import Decodes, paged_decode
from batchrunner.kernels.gpu.prefix_group import PrefixGroups, attend_prefix_groups
from batchrunner.kernels.gpu.rms_norm import add_rms_norm, rms_norm
from batchrunner.kernels.gpu.rotary_kv import rotate_and_write_kv, write_kv
from batchrunner.kernels.gpu.sampling import sample
from batchrunner.kernels.gpu.swiglu import swiglu
from batchrunner.kernels.sampling_work import SamplingWork


@dataclass(frozen=True, slots=True)
class GpuPlan:
    """The work on the device. positions [T] int32: that of each row in its request, which the levels ask for."""

    levels: list[PrefixGroups]
    positions: Tensor
    chunks: Chunks | None
    decodes: list[Decodes]


class TritonKernels:
    """On a GPU, or under Triton's interpreter with device cpu."""

    name = "Triton"

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def plan(self, work: AttentionWork, block_size: int) -> GpuPlan:
        chunks = [segment for segment in work.segments if segment.num_tokens > 1]
        decodes = [segment for segment in work.segments if segment.num_tokens == 1]
        return GpuPlan(
            [self._level(level, block_size) for level in work.levels],
            torch.from_numpy(work.positions()).to(self._device),
            self._chunks(chunks, block_size) if chunks else None,
            [self._decodes(bucket, block_size) for bucket in _buckets(decodes)],
        )

    def attend(
        self, query: Tensor, k_cache: Tensor, v_cache: Tensor, plan: GpuPlan, options: AttentionOptions
    ) -> Tensor:
        query = _dense(query)
        out = query.new_empty(query.shape[0], query.shape[1], v_cache.shape[3])
        prefix = None
        if plan.levels:
            prefix = attend_prefix_groups(query, k_cache, v_cache, plan.levels, plan.positions, options)
        if plan.chunks is not None:
            paged_chunks(query, k_cache, v_cache, plan.chunks, options, out)
        for decodes in plan.decodes:
            paged_decode(query, k_cache, v_cache, decodes, options, prefix, out)
        return out

    def write_kv(self, key: Tensor, value: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor) -> None:
        write_kv(_dense(key), _dense(value), k_cache, v_cache, slots)

    def copy_blocks(self, cache: Tensor, sources: Tensor, targets: Tensor) -> None:
        copy_blocks(cache, sources, targets)

    def rotate_and_write_kv(
        self, qkv: Tensor, cos: Tensor, sin: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor, num_heads: int
    ) -> Tensor:
        return rotate_and_write_kv(qkv, cos, sin, k_cache, v_cache, slots, num_heads, k_cache.shape[1])

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return rms_norm(x, weight, eps)

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
        return add_rms_norm(x, residual, weight, eps)

    def swiglu(self, gate_up: Tensor) -> Tensor:
        return swiglu(gate_up)

    def sample(self, logits: Tensor, work: SamplingWork) -> Tensor:
        parameters = (work.temperatures, work.top_ks, work.top_ps, work.min_ps, work.keys, work.positions)
        # In one copy.
        words = torch.from_numpy(np.concatenate([each.view(np.int64).ravel() for each in parameters]))
        words = words.to(self._device)
        temperatures, top_ks, top_ps, min_ps, keys, positions = torch.split(words, [each.size for each in parameters])
        return sample(
            _dense(logits),
            temperatures.view(torch.float64),
            top_ks,
            top_ps.view(torch.float64),
            min_ps.view(torch.float64),
            keys.view(-1, 2),
            positions,
        )

    def _level(self, groups: Sequence[PrefixGroup], block_size: int) -> PrefixGroups:
        return PrefixGroups(
            self._ints(row for group in groups for row in group.rows),
            self._ints([0, *accumulate(len(group.rows) for group in groups)]),
            self._tables([_blocks(group.block_table, group.kv_begin, group.kv_end, block_size) for group in groups]),
            self._ints(group.kv_begin for group in groups),
            self._ints(group.kv_end for group in groups),
        )

    def _chunks(self, segments: Sequence[Segment], block_size: int) -> Chunks:
        assert all(segment.kv_begin == 0 for segment in segments), "only one-token segments are members of groups"
        token_begins = [0, *accumulate(segment.num_tokens for segment in segments)]
        return Chunks(
            self._ints(segment.start for segment in segments),
            self._ints(token_begins),
            self._ints(segment.context_len for segment in segments),
            self._own_tables(segments, block_size),
            token_begins[-1],
        )

    def _decodes(self, segments: Sequence[Segment], block_size: int) -> Decodes:
        return Decodes(
            self._ints(segment.start for segment in segments),
            self._own_tables(segments, block_size),
            self._ints(segment.kv_begin for segment in segments),
            self._ints(segment.context_len for segment in segments),
        )

    def _own_tables(self, segments: Sequence[Segment], block_size: int) -> Tensor:
        return self._tables([_blocks(s.block_table, s.kv_begin, s.context_len, block_size) for s in segments])

    def _tables(self, tables: Sequence[Sequence[int]]) -> Tensor:
        """[number of tables, length of the longest]; what pads the others is never read."""
        padded = np.zeros((len(tables), max(map(len, tables))), dtype=np.int32)
        for row, table in zip(padded, tables, strict=True):
            row[: len(table)] = table
        return torch.from_numpy(padded).to(self._device)

    def _ints(self, values: Iterable[int]) -> Tensor:
        return torch.tensor(list(values), dtype=torch.int32, device=self._device)


def _blocks(block_table: Sequence[int], kv_begin: int, kv_end: int, block_size: int) -> Sequence[int]:
    return block_table[kv_begin // block_size : -(-kv_end // block_size)]


def _buckets(segments: Iterable[Segment]) -> list[list[Segment]]:
    """Decodes whose numbers of splits are between the same powers of two.

    paged_decode has a buffer of as many splits for each as the longest has: so at most half of it is unused.
    """
    buckets: dict[int, list[Segment]] = {}
    for segment in segments:
        num_splits = -(-(segment.context_len - segment.kv_begin) // SPLIT_SIZE)
        buckets.setdefault((num_splits - 1).bit_length(), []).append(segment)
    return list(buckets.values())


def _dense(x: Tensor) -> Tensor:
    """x with its last dimension contiguous, as kernels load it."""
    return x if x.stride(-1) == 1 else x.contiguous()
