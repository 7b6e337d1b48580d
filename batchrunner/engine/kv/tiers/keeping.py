"""What of a run's KV is kept on disk for the next one: the blocks that most requests shared."""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from batchrunner.engine.kv.chain import ROOT_KEY
from batchrunner.engine.kv.foresight import Foresight
from batchrunner.engine.kv.places import Move, Place
from batchrunner.engine.kv.prefix_cache import PrefixCache
from batchrunner.engine.kv.tiers.disk_file import DiskFile
from batchrunner.engine.kv.tiers.tier import StoredBlock, Tier

MIN_USES = 2  # a block that one request used is its own


def disk_tier(disk: DiskFile, foresight: Foresight) -> Tier:
    """The tier over the slots of the file, with what an earlier run kept in it."""

    def is_intact(slot: int, key: bytes) -> bool:
        if disk.is_intact(slot, key):
            return True
        if tier.num_broken == 0:
            warnings.warn("the disk tier: kept blocks are damaged; their tokens are computed again", stacklevel=2)
        return False

    depths = _depths({block.key: block.parent_key for block in disk.kept if block.key != block.parent_key})
    kept = [
        StoredBlock(block.key, block.parent_key, depths[block.key], block.slot, block.num_uses, is_checked=False)
        for block in disk.kept
        if block.key in depths
    ]
    tier = Tier(Place.DISK, disk.num_slots, foresight, kept, is_intact, disk.discard)
    return tier


def keep_prefixes(cache: PrefixCache, tiers: Sequence[Tier], disk: DiskFile) -> list[Move]:
    """The moves that bring the most used shared blocks to disk; to be made when no step will follow.

    Whole prefixes: a block is worth at most what its parent is, and nothing without it.
    """
    tier = next(tier for tier in tiers if tier.place == Place.DISK)
    found = {key: block for key, block in _found(cache, tiers).items() if block.num_uses >= MIN_USES}
    values: dict[bytes, float] = {ROOT_KEY: math.inf}
    for key, block in sorted(found.items(), key=lambda item: item[1].depth):
        values[key] = min(block.value, values.get(block.parent_key, 0.0))
    best = sorted(found, key=lambda key: (-values[key], found[key].depth))[: tier.num_slots]
    chosen = {key: found[key] for key in best if values[key] > 0}
    for stored in tier.blocks():
        if stored.key not in chosen:
            tier.discard(stored.key)
    moves = []
    for key, block in chosen.items():
        copy = tier.find(key) if block.place != Place.DISK else tier.peek(key)
        if copy is not None:
            disk.set_num_uses(copy.slot, block.num_uses)
        elif block.place != Place.DISK:
            slot = tier.put(key, block.parent_key, block.depth, block.num_uses).slot
            moves.append(Move(block.place, block.slot, Place.DISK, slot, key, block.parent_key, block.num_uses))
    return moves


@dataclass(frozen=True, slots=True)
class Found:
    """A block in the nearest place that has it. value: its uses; what an earlier run kept and this one did not ask for
    counts half, so that it fades where there is little room."""

    place: Place
    slot: int
    parent_key: bytes
    depth: int
    num_uses: int
    value: float


def _found(cache: PrefixCache, tiers: Sequence[Tier]) -> dict[bytes, Found]:
    found: dict[bytes, Found] = {}
    for node in cache.nodes():
        if node.computed:
            uses = node.num_uses
            found[node.key] = Found(Place.DEVICE, node.block, node.parent_key, node.depth, uses, uses)
    for tier in tiers:
        for block in tier.blocks():
            uses = block.num_uses
            value = uses if block.is_checked else uses / 2
            known = found.get(block.key)
            if known is None:
                found[block.key] = Found(tier.place, block.slot, block.parent_key, block.depth, uses, value)
            else:  # the nearer copy is the one to take, whichever was counted more
                most = max(known.num_uses, uses)
                found[block.key] = replace(known, num_uses=most, value=max(known.value, value))
    return found


def _depths(parents: Mapping[bytes, bytes]) -> dict[bytes, int]:
    depths: dict[bytes, int] = {}
    for key in parents:
        chain = []
        while key in parents and key not in depths:
            chain.append(key)
            key = parents[key]
        for number, member in enumerate(reversed(chain), depths.get(key, 0) + 1):
            depths[member] = number
    return depths
