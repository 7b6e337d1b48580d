"""Which blocks hold a request's tokens: found in the prefix cache or below it, copied on write, or allocated."""

from dataclasses import dataclass, field

from batchrunner.engine.kv.block_changes import BlockChanges
from batchrunner.engine.kv.block_pool import BlockPool
from batchrunner.engine.kv.chain import block_key, block_keys
from batchrunner.engine.kv.places import InnerCopy, Move, Place
from batchrunner.engine.kv.prefix_cache import Node, PartialMatch, PrefixCache
from batchrunner.engine.kv.tiers.lower_tiers import LowerTiers
from batchrunner.engine.request import Request


@dataclass(slots=True)
class PrefixMatch:
    """What is known of the tokens a request would compute next.

    nodes: on the device, of which num_unheld no request holds: taking them leaves so many fewer blocks to evict.
    below: keys of the blocks after those, in a lower tier. partial: the beginning of the block after all of these.
    """

    nodes: list[Node] = field(default_factory=list)
    num_unheld: int = 0
    below: list[bytes] = field(default_factory=list)
    partial: PartialMatch | None = None

    def num_tokens(self, block_size: int) -> int:
        num_blocks = len(self.nodes) + len(self.below)
        return num_blocks * block_size + (self.partial.num_tokens if self.partial else 0)


NO_MATCH = PrefixMatch()


class BlockTables:
    """Fills and empties the block tables of requests. A table ends where its request's computed tokens end."""

    def __init__(self, pool: BlockPool, cache: PrefixCache, below: LowerTiers, *, prefix_caching: bool) -> None:
        self.pool = pool
        self.cache = cache
        self.below = below
        self._prefix_caching = prefix_caching

    @property
    def num_available(self) -> int:
        """Blocks that are free or can be made so."""
        return self.pool.num_free + self.cache.num_evictable

    def num_missing(self, request: Request, num_tokens: int) -> int:
        return self.pool.num_blocks_for(num_tokens) - len(request.block_table)

    def num_needed(self, request: Request, match: PrefixMatch, num_tokens: int) -> int:
        """By how much num_available falls if the request takes the match and then holds num_tokens tokens."""
        return self.num_missing(request, num_tokens) - len(match.nodes) + match.num_unheld

    def match(self, request: Request, num_available: int) -> PrefixMatch:
        """How far the request can catch up without computing. One token is always left: its logits are needed.

        num_available: blocks that taking the match may use up.
        """
        block_size = self.pool.block_size
        index = request.num_registered_blocks
        if not self._prefix_caching or request.num_remaining_tokens == 1:
            return NO_MATCH
        if request.num_computed_tokens != index * block_size:
            return NO_MATCH  # in the middle of a block of its own
        match = PrefixMatch()
        keys = block_keys(request, block_size)
        end = (request.num_tokens - 1) // block_size
        while index < end and (node := self.cache.find(keys[index])) is not None:
            is_unheld = not self.cache.is_held(node)
            if is_unheld and match.num_unheld == num_available:
                return match
            match.num_unheld += is_unheld
            match.nodes.append(node)
            index += 1
        num_available -= match.num_unheld
        while index < end and len(match.below) < num_available and self.below.find(keys[index]) is not None:
            match.below.append(keys[index])
            index += 1
        if not match.below and num_available:
            parent = match.nodes[-1] if match.nodes else self._last_node(request)
            start = index * block_size
            wanted = request.token_ids[start : min(start + block_size, request.num_tokens - 1)]
            match.partial = self.cache.partial_child(parent, wanted) if wanted else None
        return match

    def take(self, request: Request, match: PrefixMatch, changes: BlockChanges) -> None:
        """Enter the match into the request's table. Its blocks from below need one of the device each."""
        block_size = self.pool.block_size
        for index, node in enumerate(match.nodes, request.num_registered_blocks):
            self.cache.hold(node)
            self._count_use(request, node, index)
            request.block_table.append(node.block)
        request.num_registered_blocks += len(match.nodes)
        request.num_computed_tokens += len(match.nodes) * block_size
        if match.below:
            self._load(request, match.below, changes)
        elif match.partial is not None:
            node, num_tokens = match.partial.node, match.partial.num_tokens
            target = self._allocate(changes)
            request.block_table.append(target)
            if node.computed:
                changes.moves.append(Move(Place.DEVICE, node.block, Place.DEVICE, target, node.key, node.parent_key))
            else:
                changes.copies.append(InnerCopy(node.block, target, num_tokens))
            request.num_computed_tokens += num_tokens

    def extend(self, request: Request, end: int, changes: BlockChanges) -> None:
        """Hold the request's tokens up to end, of which this step computes those not computed yet. There is room."""
        for _ in range(self.num_missing(request, end)):
            request.block_table.append(self._allocate(changes))
        if self._prefix_caching:
            self._register(request, end, changes)
            self._register_end(request, end, changes)

    def waits_no_more(self, request: Request) -> None:
        """The blocks it waited for will be needed later now, or never."""
        for key in request.block_keys:
            self.cache.next_use_changed(key)
            self.below.next_use_changed(key)

    def release(self, request: Request) -> None:
        """Take all blocks from the request; it will have to start over, from what the cache keeps of it."""
        self.cache.release(request.block_table)
        request.block_table = []
        request.num_registered_blocks = 0
        request.high_water = max(request.high_water, request.num_computed_tokens)
        request.num_computed_tokens = 0
        request.settled_until = 0

    def _load(self, request: Request, keys: list[bytes], changes: BlockChanges) -> None:
        blocks = [self._allocate(changes) for _ in keys]  # may push out below what was to be loaded: look again
        for index, key in enumerate(keys):
            found = self.below.find(key)
            if found is None:
                for block in blocks[index:]:
                    self.pool.release(block)
                return
            place, stored = found
            changes.moves.append(Move(place, stored.slot, Place.DEVICE, blocks[index], key, stored.parent_key))
            node = self._enter(request, blocks[index])
            node.computed = True
            node.num_uses += stored.num_uses
            changes.new_nodes.append(node)
            request.num_computed_tokens += self.pool.block_size

    def _register(self, request: Request, end: int, changes: BlockChanges) -> None:
        """Enter the blocks that are full once the tokens up to end are computed into the cache."""
        block_size = self.pool.block_size
        num_full = end // block_size
        keys = block_keys(request, block_size) if request.num_registered_blocks < num_full else []
        while request.num_registered_blocks < num_full:
            index = request.num_registered_blocks
            is_computed = (index + 1) * block_size <= request.num_computed_tokens
            twin = self.cache.find(keys[index])
            if twin is None:
                node = self._enter(request, request.block_table[index])
                node.num_uses = 1  # also if it was evicted since its use was counted
                node.computed = is_computed
                if not is_computed:
                    changes.new_nodes.append(node)
                continue
            if not is_computed:
                return  # this step still writes to our own block; share theirs next time
            self._forget_part(request.block_table[index])
            self.cache.hold(twin)  # somebody else was first: share theirs, so that one copy is kept
            self._count_use(request, twin, index)
            self.pool.release(request.block_table[index])
            request.block_table[index] = twin.block
            request.num_registered_blocks += 1

    def _register_end(self, request: Request, end: int, changes: BlockChanges) -> None:
        """Enter what the end of a prompt fills of its block, when the step that computes it is planned."""
        block_size = self.pool.block_size
        start = request.num_registered_blocks * block_size
        if not start < end < start + block_size or end < request.num_tokens:
            return
        if request.num_computed_tokens >= request.num_prompt_tokens:
            return
        token_ids, parent = request.token_ids[start:end], self._last_node(request)
        key = block_key(parent.key, token_ids)
        if self.cache.find(key) is None:
            node = self.cache.insert(parent, key, token_ids, request.block_table[request.num_registered_blocks])
            changes.new_nodes.append(node)

    def _forget_part(self, block: int) -> None:
        node = self.cache.node_of(block)
        if node is not None:
            self.cache.forget(node)

    def _enter(self, request: Request, block: int) -> Node:
        """The request's next block, the first that is not cached yet, becomes a node."""
        block_size, index = self.pool.block_size, request.num_registered_blocks
        token_ids = request.token_ids[index * block_size : (index + 1) * block_size]
        parent = self._last_node(request)
        if index == len(request.block_table):
            request.block_table.append(block)
        request.num_registered_blocks += 1
        key, part = request.block_keys[index], self.cache.node_of(block)
        node = self.cache.grow(part, key, token_ids) if part else self.cache.insert(parent, key, token_ids, block)
        self._count_use(request, node, index)
        return node

    def _count_use(self, request: Request, node: Node, index: int) -> None:
        """Once, also if the request comes back to the block after a preemption."""
        if index >= request.num_counted_blocks:
            request.num_counted_blocks = index + 1
            node.num_uses += 1

    def _last_node(self, request: Request) -> Node:
        if request.num_registered_blocks == 0:
            return self.cache.root
        node = self.cache.node_of(request.block_table[request.num_registered_blocks - 1])
        assert node is not None, "a registered block left the cache while a request held it"
        return node

    def _allocate(self, changes: BlockChanges) -> int:
        if self.pool.num_free == 0:
            node = self.cache.evict()
            if self.cache.is_whole(node):  # parts are never asked for by their keys
                self.below.take_down(node, changes)
        return self.pool.allocate()
