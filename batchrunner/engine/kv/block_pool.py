"""The KV memory as equal blocks with reference counts.

A block is held once by every block table it stands in, and once by the prefix cache if it is cached. It is free when
nobody holds it. The pool knows nothing of what is in a block.
"""

from collections.abc import Sequence


class BlockPool:
    """num_blocks blocks of block_size tokens each; block ids are 0 … num_blocks - 1."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.ref_counts = [0] * num_blocks
        # Last in, first out: memory that was never used stays untouched, so the process grows only as needed.
        self._free = list(range(num_blocks - 1, -1, -1))

    @property
    def num_free(self) -> int:
        return len(self._free)

    def num_blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def allocate(self) -> int:
        """Take a free block; its reference count is 1. The caller has made sure that one is free."""
        block = self._free.pop()
        assert self.ref_counts[block] == 0
        self.ref_counts[block] = 1
        return block

    def hold(self, block: int) -> int:
        """Add a holder to a block that has one already; returns the new count."""
        assert self.ref_counts[block] > 0
        self.ref_counts[block] += 1
        return self.ref_counts[block]

    def release(self, block: int) -> int:
        """Take a holder away; at 0 the block is free. Returns the new count."""
        assert self.ref_counts[block] > 0
        self.ref_counts[block] -= 1
        if self.ref_counts[block] == 0:
            self._free.append(block)
        return self.ref_counts[block]

    def check_integrity(self, block_tables: Sequence[Sequence[int]], cached_blocks: Sequence[int]) -> None:
        """Assert that every block is accounted for: by the tables, by the cache, or as free."""
        counts = [0] * self.num_blocks
        for holder in (*block_tables, cached_blocks):
            assert len(set(holder)) == len(holder), f"a block twice in one table: {holder}"
            for block in holder:
                counts[block] += 1
        assert counts == self.ref_counts, "reference counts differ from the holders"
        assert sorted(self._free) == [b for b, count in enumerate(counts) if count == 0], "the free list is wrong"
