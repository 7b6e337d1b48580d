"""Automatic prefix caching: full blocks on the device, found again by their content.

           root
          /    \\
      [a b c]  [x y z]        a node is one full block; a request that holds a node holds all above it,
      /     \\                 so reference counts never grow downwards (RadixAttention's tree,
  [d e f]  [d e g]            arXiv 2312.07104, at block grain); a leaf is evicted before its parent

A block is entered as soon as the step that will fill it is planned: the step writes all KV of a layer before it reads
any, so requests planned later in the same step already share it. Such a node is `computed` only after the step.

The end of a prompt rarely fills its block. What it fills is entered, too: a part of a block, which others can copy. It
grows to a whole one when its request has filled the block.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from batchrunner.engine.kv.block_pool import BlockPool
from batchrunner.engine.kv.chain import ROOT_KEY
from batchrunner.engine.kv.foresight import Foresight
from batchrunner.engine.kv.leaf_heap import LeafHeap
from batchrunner.engine.kv.siblings import Siblings, num_common


@dataclass(eq=False, slots=True)
class Node:
    """token_ids: fewer than a block's for the end of a prompt. num_uses: how many requests have had it whole;
    block_tables.py counts."""

    key: bytes
    token_ids: list[int]
    block: int
    parent: "Node | None"
    depth: int = 0
    children: dict[bytes, "Node"] = field(default_factory=dict)
    computed: bool = False
    num_uses: int = 0
    last_used: int = 0

    @property
    def parent_key(self) -> bytes:
        return self.parent.key if self.parent else ROOT_KEY


@dataclass(frozen=True, slots=True)
class PartialMatch:
    """A block whose first num_tokens tokens are those wanted next."""

    node: Node
    num_tokens: int


class PrefixCache:
    """Cached blocks of one pool. Blocks that only the cache holds are evictable, in LeafHeap's order."""

    def __init__(self, pool: BlockPool, foresight: Foresight) -> None:
        self._pool = pool
        self.root = Node(ROOT_KEY, [], -1, None)
        self._node_of: dict[int, Node] = {}
        self._node_with: dict[bytes, Node] = {}
        self._siblings: dict[bytes, Siblings[Node]] = {}  # by the key of their parent
        self._leaves = LeafHeap[Node](foresight, self._is_evictable_leaf)
        self._clock = 0
        self.num_evictable = 0
        self.num_evictions = 0

    def __len__(self) -> int:
        return len(self._node_of)

    def node_of(self, block: int) -> Node | None:
        return self._node_of.get(block)

    def find(self, key: bytes) -> Node | None:
        """The node with the key of chain.block_key."""
        return self._node_with.get(key)

    def partial_child(self, parent: Node, token_ids: list[int]) -> PartialMatch | None:
        """The node below parent that shares the longest beginning with token_ids, if any shares one token."""
        siblings = self._siblings.get(parent.key)
        node = None if siblings is None else siblings.nearest(token_ids)
        length = 0 if node is None else num_common(node.token_ids, token_ids)
        return PartialMatch(node, length) if node is not None and length else None

    def insert(self, parent: Node, key: bytes, token_ids: list[int], block: int) -> Node:
        """Enter a block that its request holds; the cache becomes a second holder."""
        node = Node(key, token_ids, block, parent, parent.depth + 1)
        assert key not in self._node_with
        self._touch(node)
        parent.children[key] = node
        self._siblings.setdefault(parent.key, Siblings()).add(node)
        self._node_of[block] = node
        self._node_with[key] = node
        self._pool.hold(block)
        return node

    def grow(self, node: Node, key: bytes, token_ids: list[int]) -> Node:
        """The rest of a block that was entered in part is known now."""
        assert node.parent is not None and not node.children and key not in self._node_with
        siblings = self._siblings[node.parent.key]
        siblings.remove(node)
        del node.parent.children[node.key]
        del self._node_with[node.key]
        node.key, node.token_ids = key, token_ids
        siblings.add(node)
        node.parent.children[key] = node
        self._node_with[key] = node
        return node

    def is_whole(self, node: Node) -> bool:
        return len(node.token_ids) == self._pool.block_size

    def hold(self, node: Node) -> None:
        """A request takes the node's block into its block table."""
        self._touch(node)
        if self._pool.hold(node.block) == 2:
            self.num_evictable -= 1

    def is_held(self, node: Node) -> bool:
        """Whether a request holds it, too."""
        return self._pool.ref_counts[node.block] > 1

    def release(self, block_table: list[int]) -> None:
        """A request gives its blocks back: cached ones become evictable, the others free."""
        for block in block_table:
            if self._pool.release(block) == 1 and block in self._node_of:
                self._became_unused(self._node_of[block])

    def evict(self) -> Node:
        """Free the block of the leaf that should leave first. The caller has made sure that num_evictable > 0."""
        node = self._leaves.pop()
        self.num_evictable -= 1
        self.num_evictions += 1
        self._remove(node)
        if node.parent is not None and self._is_evictable_leaf(node.parent):
            self._leaves.push(node.parent)
        return node

    def forget(self, node: Node) -> None:
        """Take a node out that is not right or wanted any more, and those below it; its holders keep their block."""
        if self._node_of.get(node.block) is not node:
            return
        for child in list(node.children.values()):
            self.forget(child)
        if not self.is_held(node):
            self.num_evictable -= 1
        self._remove(node)
        if node.parent is not None and self._is_evictable_leaf(node.parent):
            self._leaves.push(node.parent)

    def next_use_changed(self, key: bytes) -> None:
        """Those who wait for the block are others than before."""
        node = self._node_with.get(key)
        if node is not None and self._is_evictable_leaf(node):
            self._leaves.push(node)

    def nodes(self) -> Iterator[Node]:
        """All nodes, parents before their children."""
        stack = list(self.root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    def check_integrity(self) -> None:
        """Assert what eviction relies on."""
        nodes = list(self.nodes())
        assert {id(node) for node in nodes} == {id(node) for node in self._node_of.values()}
        assert {node.key: id(node) for node in nodes} == {key: id(node) for key, node in self._node_with.items()}
        evictable = 0
        for node in nodes:
            assert self._node_of[node.block] is node and 0 < len(node.token_ids) <= self._pool.block_size
            assert self.is_whole(node) or not node.children
            count = self._pool.ref_counts[node.block]
            evictable += count == 1
            for child in node.children.values():
                assert child.parent is node and child.depth == node.depth + 1
                assert self._pool.ref_counts[child.block] <= count, "a child outlives its parent"
        assert evictable == self.num_evictable
        assert self._leaves.holds_all([node for node in nodes if self._is_evictable_leaf(node)]), "a leaf was lost"

    @property
    def cached_blocks(self) -> list[int]:
        return list(self._node_of)

    def _remove(self, node: Node) -> None:
        assert node.parent is not None
        del node.parent.children[node.key]
        del self._node_of[node.block]
        del self._node_with[node.key]
        siblings = self._siblings[node.parent.key]
        siblings.remove(node)
        if not siblings:
            del self._siblings[node.parent.key]
        self._pool.release(node.block)

    def _touch(self, node: Node) -> None:
        self._clock += 1
        node.last_used = self._clock

    def _became_unused(self, node: Node) -> None:
        self.num_evictable += 1
        if not node.children:
            self._leaves.push(node)

    def _is_evictable_leaf(self, node: Node) -> bool:
        return self._node_of.get(node.block) is node and not node.children and self._pool.ref_counts[node.block] == 1
