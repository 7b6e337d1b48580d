"""Blocks of KV on the device and below it, without content, for tests of what lies where."""

from batchrunner.engine.kv.block_pool import BlockPool
from batchrunner.engine.kv.chain import ROOT_KEY, block_key
from batchrunner.engine.kv.foresight import Foresight, Unknown
from batchrunner.engine.kv.prefix_cache import Node, PrefixCache
from batchrunner.engine.kv.tiers.tier import StoredBlock, Tier
from batchrunner.engine.request import Request
from tests.engine.scheduling.schedulers import request


def build(
    num_blocks: int = 16, block_size: int = 2, foresight: Foresight | None = None
) -> tuple[BlockPool, PrefixCache]:
    pool = BlockPool(num_blocks, block_size)
    return pool, PrefixCache(pool, foresight or Unknown())


def enter(pool: BlockPool, cache: PrefixCache, parent: Node, token_ids: list[int]) -> Node:
    """A computed node that nobody but the cache holds once release() is called on its block."""
    node = cache.insert(parent, block_key(parent.key, token_ids), token_ids, pool.allocate())
    node.computed = True
    return node


def waiting(number: int, *token_ids: int) -> Request:
    item = request(list(token_ids))
    item.number = number
    return item


def node(*token_ids: int, block: int = 0, num_uses: int = 1) -> Node:
    """The block at the end of a chain of blocks of one token each."""
    if not token_ids:
        return Node(ROOT_KEY, [], -1, None)
    parent = node(*token_ids[:-1])
    key = block_key(parent.key, list(token_ids[-1:]))
    return Node(key, list(token_ids[-1:]), block, parent, len(token_ids), num_uses=num_uses)


def key(*token_ids: int) -> bytes:
    return node(*token_ids).key


class Device:
    """A prefix cache of blocks of one token, whose uses are told."""

    def __init__(self) -> None:
        self._pool, self.cache = build(num_blocks=100, block_size=1)

    def enter(self, *token_ids: int, num_uses: int) -> Node:
        parent = self.cache.find(key(*token_ids[:-1])) or self.cache.root
        entered = enter(self._pool, self.cache, parent, [token_ids[-1]])
        entered.num_uses = num_uses
        return entered


def put(tier: Tier, *token_ids: int, num_uses: int = 1) -> StoredBlock:
    block = node(*token_ids)
    return tier.put(block.key, block.parent_key, block.depth, num_uses)


def kept(slot: int, *token_ids: int, num_uses: int = 1) -> StoredBlock:
    """What an earlier run left in the slot."""
    block = node(*token_ids)
    return StoredBlock(block.key, block.parent_key, block.depth, slot, num_uses, is_checked=False)
