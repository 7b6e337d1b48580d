"""Which blocks hold a request's tokens: found in the prefix cache, copied on write, or allocated."""

from batchrunner.engine.block_pool import BlockPool
from batchrunner.engine.prefix_cache import Node, PrefixCache
from batchrunner.engine.request import Request
from batchrunner.engine.schedule import BlockCopy, Schedule


class BlockTables:
    """Fills and empties the block tables of requests. A table ends where its request's computed tokens end."""

    def __init__(self, pool: BlockPool, cache: PrefixCache, *, prefix_caching: bool) -> None:
        self.pool = pool
        self.cache = cache
        self._prefix_caching = prefix_caching

    @property
    def num_available(self) -> int:
        """Blocks that are free or can be made so."""
        return self.pool.num_free + self.cache.num_evictable

    def num_missing(self, request: Request, num_tokens: int) -> int:
        return self.pool.num_blocks_for(num_tokens) - len(request.block_table)

    def extend(self, request: Request, end: int, schedule: Schedule) -> None:
        """Hold the request's tokens up to end, of which this step computes those not computed yet. There is room."""
        for _ in range(self.num_missing(request, end)):
            request.block_table.append(self._allocate())
        self._register(request, end, schedule)

    def release(self, request: Request) -> None:
        """Take all blocks from the request; it will have to start over, from what the cache keeps of it."""
        self.cache.release(request.block_table)
        request.block_table = []
        request.num_registered_blocks = 0
        request.num_computed_tokens = 0

    def reuse(self, request: Request, schedule: Schedule) -> None:
        """Catch up from the cache as far as it goes. One token is always left to compute: its logits are needed."""
        block_size, token_ids = self.pool.block_size, request.token_ids
        if not self._prefix_caching or request.num_remaining_tokens == 1:
            return
        if request.num_computed_tokens != request.num_registered_blocks * block_size:
            return  # in the middle of a block of its own
        parent = self._last_node(request)
        while request.num_remaining_tokens > block_size:
            start = request.num_computed_tokens
            node = self.cache.child(parent, token_ids[start : start + block_size])
            if node is None:
                break
            self.cache.hold(node)
            request.block_table.append(node.block)
            request.num_registered_blocks += 1
            request.num_computed_tokens += block_size
            parent = node
        start = request.num_computed_tokens
        wanted = token_ids[start : min(start + block_size, request.num_tokens - 1)]
        partial = self.cache.partial_child(parent, wanted) if wanted and self.num_available else None
        if partial is not None:
            target = self._allocate()
            request.block_table.append(target)
            schedule.copies.append(BlockCopy(partial.node.block, target, request))
            request.num_computed_tokens += partial.num_tokens

    def _register(self, request: Request, end: int, schedule: Schedule) -> None:
        """Enter the blocks that are full once the tokens up to end are computed into the cache."""
        if not self._prefix_caching:
            return
        block_size = self.pool.block_size
        while (request.num_registered_blocks + 1) * block_size <= end:
            index = request.num_registered_blocks
            parent = self._last_node(request)
            token_ids = request.token_ids[index * block_size : (index + 1) * block_size]
            is_computed = (index + 1) * block_size <= request.num_computed_tokens
            twin = self.cache.child(parent, token_ids)
            if twin is None:
                node = self.cache.insert(parent, token_ids, request.block_table[index])
                node.computed = is_computed
                if not is_computed:
                    schedule.new_nodes.append(node)
            elif is_computed:  # somebody else was first: share theirs, so that one copy is kept
                self.cache.hold(twin)
                self.pool.release(request.block_table[index])
                request.block_table[index] = twin.block
            else:
                break  # this step still writes to our own block; share theirs next time
            request.num_registered_blocks += 1

    def _last_node(self, request: Request) -> Node:
        if request.num_registered_blocks == 0:
            return self.cache.root
        node = self.cache.node_of(request.block_table[request.num_registered_blocks - 1])
        assert node is not None, "a registered block left the cache while a request held it"
        return node

    def _allocate(self) -> int:
        if self.pool.num_free == 0:
            self.cache.evict()
        return self.pool.allocate()
