"""What one step does with blocks of KV beside computing them."""

from dataclasses import dataclass, field

from batchrunner.engine.kv.places import InnerCopy, Move
from batchrunner.engine.kv.prefix_cache import Node


@dataclass(slots=True)
class BlockChanges:
    """moves are done in their order before anything is written, as if each were done when it was decided; copies in
    theirs after it."""

    moves: list[Move] = field(default_factory=list)
    copies: list[InnerCopy] = field(default_factory=list)
    new_nodes: list[Node] = field(default_factory=list)  # cached, and right only once this step has gone well

    def forget_copies_to(self, block_table: list[int]) -> None:
        """Their request goes before it has computed anything: others may write to the blocks in this very step."""
        self.copies = [copy for copy in self.copies if copy.target_block not in block_table]
