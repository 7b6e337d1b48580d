"""The places below the device: blocks that leave it and will be needed again move down, and come back.

       device ──evicted, needed again──▶ host ──pushed out──▶ disk
          ▲                               │                    │
          └────── found by its key ───────┴────────────────────┘

A block that comes back leaves its copy below, so that it need not be written once more when it is evicted again.
"""

from collections.abc import Sequence

from batchrunner.engine.kv.block_changes import BlockChanges
from batchrunner.engine.kv.foresight import Foresight
from batchrunner.engine.kv.places import Move, Place
from batchrunner.engine.kv.prefix_cache import Node
from batchrunner.engine.kv.swap_choice import SwapChoice
from batchrunner.engine.kv.tiers.tier import StoredBlock, Tier


class LowerTiers:
    def __init__(self, tiers: Sequence[Tier], choice: SwapChoice, foresight: Foresight) -> None:
        self.tiers = tiers
        self.choice = choice
        self._foresight = foresight

    def find(self, key: bytes) -> tuple[Place, StoredBlock] | None:
        """Where the block with this key lies, if bringing it back is cheaper than computing it."""
        for tier in self.tiers:
            block = tier.find(key) if len(tier) and self.choice.loads(tier.place) else None
            if block is not None:
                return tier.place, block
        return None

    def take_down(self, node: Node, changes: BlockChanges) -> None:
        """The node's block leaves the device: it is moved down if it will be needed again and moving is cheaper."""
        if self.tiers and self._foresight.is_wanted(node.key):
            self._store(node, Place.DEVICE, node.block, changes)

    def next_use_changed(self, key: bytes) -> None:
        """Those who wait for the block are others than before."""
        for tier in self.tiers:
            tier.next_use_changed(key)

    def undo(self, changes: BlockChanges) -> None:
        """The step failed, and nobody knows which of its moves were made."""
        for move in changes.moves:
            for tier in self.tiers:
                if tier.place == move.target:
                    tier.discard(move.key)

    def check_integrity(self) -> None:
        for tier in self.tiers:
            tier.check_integrity()

    def _store(self, block: Node | StoredBlock, source: Place, slot: int, changes: BlockChanges) -> None:
        for tier in self.tiers:
            if tier.place <= source or not self.choice.stores(tier.place):
                continue
            if (copy := tier.find(block.key)) is not None:
                copy.num_uses = max(copy.num_uses, block.num_uses)
                return
            if tier.is_full:
                leaving = tier.leaving(block.key, block.depth)
                if leaving is None:
                    continue
                tier.discard(leaving.key)
                if self._foresight.is_wanted(leaving.key):
                    self._store(leaving, tier.place, leaving.slot, changes)
            stored = tier.put(block.key, block.parent_key, block.depth, block.num_uses)
            keys = (block.key, block.parent_key, block.num_uses)
            changes.moves.append(Move(source, slot, tier.place, stored.slot, *keys))
            return
