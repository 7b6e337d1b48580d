"""Where a block of KV can lie, and how its content gets from one place to another."""

from dataclasses import dataclass
from enum import IntEnum


class Place(IntEnum):
    """Nearest first."""

    DEVICE = 0
    HOST = 1
    DISK = 2


@dataclass(frozen=True, slots=True)
class Move:
    """A block's content is copied from a slot of one place to a slot of another, or from block to block."""

    source: Place
    source_slot: int
    target: Place
    target_slot: int
    key: bytes  # of the block's content, see chain.py
    parent_key: bytes
    num_uses: int = 0


@dataclass(frozen=True, slots=True)
class InnerCopy:
    """The first num_tokens tokens of a block that this very step computes, for the beginning of another block.

    Done in every layer, after the step's KV is written and before any is read.
    """

    source_block: int
    target_block: int
    num_tokens: int
