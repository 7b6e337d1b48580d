"""Where blocks of KV lie, on the device, in host memory and on disk, and how they get from one place to another.

On the CPU the host tier is an arena of its own beside the pool, so that a move is what it is elsewhere: a copy.
"""

import math
import mmap
import os
import time
from collections.abc import Callable, Sequence
from itertools import groupby

import torch
from torch import Tensor

from batchrunner.engine.kv.chain import KEY_BYTES, ROOT_KEY
from batchrunner.engine.kv.paged_kv import LayerShape, PagedKV
from batchrunner.engine.kv.places import Move, Place
from batchrunner.engine.kv.swap_choice import MeasuredCosts
from batchrunner.engine.kv.tiers.disk_file import DiskFile
from batchrunner.kernels.interface import Kernels

Make = Callable[[tuple[int, ...]], Tensor]


def host_memory(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Zeros that the system gives as they are used (torch's are written at once), in large pages where it can.

    A cache is read all over, and every small page costs a walk through the page table. Private: shared memory has large
    pages only where the system is set up so.
    """
    memory = mmap.mmap(-1, math.prod(shape) * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype).view(shape)


class KVStore:
    """The paged KV cache `kv`, and below it num_host_blocks in host memory and the slots of a file.

    A block of host memory is, cache by cache, shaped like one of the device; a slot of the file holds them one after
    the other.
    """

    def __init__(
        self,
        layers: Sequence[LayerShape],
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
        kernels: Kernels,
        costs: MeasuredCosts,
        num_host_blocks: int = 0,
        disk: DiskFile | None = None,
    ) -> None:
        def cache_of(num: int, place: torch.device) -> Callable[[int, int], Tensor]:
            def cache(num_heads: int, dim: int) -> Tensor:
                shape = (num, num_heads, block_size, dim)
                # Zeros: what padding reads is masked, but 0 · NaN would not be.
                return (
                    host_memory(shape, dtype) if place.type == "cpu" else torch.zeros(shape, dtype=dtype, device=place)
                )

            return cache

        self.kv = PagedKV.build(layers, cache_of(num_blocks, device))
        self._caches = {Place.DEVICE: _caches(self.kv)}
        if num_host_blocks:
            host = PagedKV.build(layers, cache_of(num_host_blocks, torch.device("cpu")))
            self._caches[Place.HOST] = _caches(host)
        self._disk = disk
        self._kernels = kernels
        self._costs = costs

    def reserve(self) -> None:
        """Take the device's memory from the system now, not as blocks are first used: too little shows at the start."""
        for cache in self._caches[Place.DEVICE]:
            cache.zero_()

    def measure(self) -> None:
        """See what moving a block takes, before anything is in the pool; the first time warms up."""
        kept = {block.slot for block in self._disk.kept} if self._disk else set()
        free_slots = {Place.HOST: 0 if Place.HOST in self._caches else None, Place.DISK: None}
        if self._disk is not None:
            free_slots[Place.DISK] = next((slot for slot in range(self._disk.num_slots) if slot not in kept), None)
        for place, slot in free_slots.items():
            if slot is None:
                continue
            for _ in range(2):
                self._costs.seconds_down.pop(place, None)
                self._costs.seconds_up.pop(place, None)
                key = os.urandom(KEY_BYTES)  # of no content: if we are killed here, it stays and is never found
                self.move([Move(Place.DEVICE, 0, place, slot, key, ROOT_KEY)])
                self.move([Move(place, slot, Place.DEVICE, 0, key, ROOT_KEY)])
            if place == Place.DISK and self._disk is not None:
                self._disk.discard(slot)

    def move(self, moves: Sequence[Move]) -> None:
        """Do the moves as if one after the other."""
        for (source, target), group in groupby(moves, key=lambda move: (move.source, move.target)):
            started = time.perf_counter()
            # Of moves to one slot the last counts; nothing that one of these moves reads is written by another.
            last = {move.target_slot: move for move in group}
            if Place.DISK in (source, target):
                for move in last.values():
                    self._move_one(move)
            else:
                self._move_many(source, target, list(last.values()))
            seconds = (time.perf_counter() - started) / len(last)
            if source == Place.DEVICE and target != Place.DEVICE:
                self._costs.observe_moves(self._costs.seconds_down, target, seconds)
            elif target == Place.DEVICE and source != Place.DEVICE:
                self._costs.observe_moves(self._costs.seconds_up, source, seconds)

    def close(self) -> None:
        self._caches = {}
        self.kv = PagedKV([], [])
        if self._disk is not None:
            self._disk.close()

    def _move_many(self, source: Place, target: Place, moves: list[Move]) -> None:
        slots = torch.tensor([[move.source_slot, move.target_slot] for move in moves])
        if source == target == Place.DEVICE:
            sources, targets = slots.to(self.kv.keys[0].device).unbind(1)
            for cache in self._caches[Place.DEVICE]:
                self._kernels.copy_blocks(cache, sources.contiguous(), targets.contiguous())
            return
        for old, new in zip(self._caches[source], self._caches[target], strict=True):
            blocks = old.index_select(0, slots[:, 0].to(old.device)).to(new.device)
            new.index_copy_(0, slots[:, 1].to(new.device), blocks)

    def _move_one(self, move: Move) -> None:
        assert self._disk is not None
        if move.target == Place.DISK:
            payload = torch.from_numpy(self._disk.begin(move.target_slot))
            for part, cache in zip(self._split(payload), self._caches[move.source], strict=True):
                part.copy_(cache[move.source_slot])
            self._disk.commit(move.target_slot, move.key, move.parent_key, move.num_uses)
            return
        payload = torch.frombuffer(self._disk.payload(move.source_slot), dtype=torch.uint8)
        for part, cache in zip(self._split(payload), self._caches[move.target], strict=True):
            cache[move.target_slot].copy_(part)

    def _split(self, payload: Tensor) -> list[Tensor]:
        """The bytes of one block as the parts of its caches."""
        parts, start = [], 0
        for cache in self._caches[Place.DEVICE]:
            end = start + cache[0].numel() * cache.dtype.itemsize
            parts.append(payload[start:end].view(cache.dtype).view(cache.shape[1:]))
            start = end
        return parts


def _caches(kv: PagedKV) -> list[Tensor]:
    return [*kv.keys, *kv.values]
