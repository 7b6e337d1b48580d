"""What the engine has done, in numbers that add up."""

from collections.abc import Sequence
from dataclasses import dataclass

from batchrunner.engine.kv.places import Move, Place
from batchrunner.engine.request import Request


@dataclass(slots=True)
class Counters:
    """Totals since the engine started.

    num_cached_tokens: prompt tokens found in the cache, in whatever tier; a token counts only the first time its
    request meets it. What a preempted request computes again is recomputed, never cached; what it finds again on a
    lower tier is among the blocks loaded. num_displacements: requests that gave way to more urgent ones, apart from
    num_preemptions, which want of memory forced. num_held_slots, num_used_slots: sums over every 16th step, of KV slots
    in the block tables of running requests and of those that hold a token.
    """

    num_steps: int = 0
    num_computed_tokens: int = 0
    num_recomputed_tokens: int = 0
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_output_tokens: int = 0
    num_preemptions: int = 0
    num_displacements: int = 0
    num_thrashes: int = 0
    num_blocks_to_host: int = 0
    num_blocks_from_host: int = 0
    num_blocks_to_disk: int = 0
    num_blocks_from_disk: int = 0
    num_held_slots: int = 0
    num_used_slots: int = 0

    @property
    def hit_rate(self) -> float:
        return self.num_cached_tokens / self.num_prompt_tokens if self.num_prompt_tokens else 0.0

    @property
    def num_computed_prompt_tokens(self) -> int:
        """Those that were not found, and all tokens computed again."""
        return self.num_prompt_tokens - self.num_cached_tokens + self.num_recomputed_tokens

    @property
    def block_utilisation(self) -> float:
        """Share of the KV slots in block tables that hold a token; the rest is the unused end of last blocks."""
        return self.num_used_slots / self.num_held_slots if self.num_held_slots else 1.0

    def count_step(self, num_tokens: int, moves: Sequence[Move]) -> None:
        self.num_steps += 1
        self.num_computed_tokens += num_tokens
        for move in moves:
            self.num_blocks_to_host += move.target == Place.HOST
            self.num_blocks_to_disk += move.target == Place.DISK
            self.num_blocks_from_host += move.source == Place.HOST and move.target == Place.DEVICE
            self.num_blocks_from_disk += move.source == Place.DISK and move.target == Place.DEVICE

    def count_slots(self, running: Sequence[Request], block_size: int) -> None:
        self.num_held_slots += sum(len(request.block_table) for request in running) * block_size
        self.num_used_slots += sum(request.num_computed_tokens for request in running)
