"""A model runner without a model: its KV cache holds what was written, its next token depends on all it reads there."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from batchrunner.engine.kv.places import Place
from batchrunner.engine.scheduling.schedule import Schedule

VOCABULARY = 50

Block = dict[int, tuple[int, int]]  # offset → (position, token id)


def next_token(token_ids: Sequence[int]) -> int:
    """The token this model gives after token_ids: a hash of all of them."""
    state = 17
    for position, token_id in enumerate(token_ids):
        state = (state * 1_000_003 + token_id * 31 + position) % 2_147_483_647
    return 3 + state % (VOCABULARY - 3)


def expected_output(prompt: Sequence[int], num_tokens: int) -> list[int]:
    token_ids = list(prompt)
    for _ in range(num_tokens):
        token_ids.append(next_token(token_ids))
    return token_ids[len(prompt) :]


@dataclass
class FakeModelRunner:
    """Reads and writes slots exactly as a real one: moves in their order, all writes, copies in theirs, all reads."""

    num_blocks: int
    block_size: int
    places: dict[Place, dict[int, Block]] = field(default_factory=lambda: {place: {} for place in Place})
    num_tokens: int = 0

    def run(self, schedule: Schedule) -> list[int]:
        for move in schedule.moves:
            self.places[move.target][move.target_slot] = dict(self.places[move.source].get(move.source_slot, {}))
        written: dict[tuple[int, int], tuple[int, int]] = {}
        for item in schedule.scheduled:
            for position in range(item.start, item.end):
                slot = self._slot(item.request.block_table, position)
                value = (position, item.request.token_ids[position])
                assert written.setdefault(slot, value) == value, "two requests write to one slot"
        for (block, offset), value in written.items():
            self.places[Place.DEVICE].setdefault(block, {})[offset] = value
        device = self.places[Place.DEVICE]
        for copy in schedule.copies:
            for offset in range(copy.num_tokens):
                device.setdefault(copy.target_block, {})[offset] = device[copy.source_block][offset]
        self.num_tokens += schedule.num_tokens
        return [
            next_token(self._read(item.request.block_table, item.end)) for item in schedule.scheduled if item.samples
        ]

    def _slot(self, block_table: Sequence[int], position: int) -> tuple[int, int]:
        return block_table[position // self.block_size], position % self.block_size

    def _read(self, block_table: Sequence[int], num_tokens: int) -> list[int]:
        token_ids = []
        for position in range(num_tokens):
            block, offset = self._slot(block_table, position)
            found_position, token_id = self.places[Place.DEVICE][block][offset]
            assert found_position == position, "a slot holds a token of another position"
            token_ids.append(token_id)
        return token_ids
