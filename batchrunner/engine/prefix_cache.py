"""Automatic prefix caching: full blocks, found again by their content.

A block's key is the SHA-256 of its parent's key and its own token ids, so that a key stands for the whole prefix
(after vLLM's automatic prefix caching; the tree of blocks is RadixAttention's, arXiv 2312.07104, at block grain).

           root
          /    \\
      [a b c]  [x y z]        a node is one full block; a request that holds a node holds all above it,
      /     \\                 so reference counts never grow downwards
  [d e f]  [d e g]            a leaf is evicted before its parent

A block is entered as soon as the step that will fill it is planned: the step writes all KV of a layer before it reads
any, so requests planned later in the same step already share it. Such a node is `computed` only after the step.
"""

import hashlib
import heapq
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from batchrunner.engine.block_pool import BlockPool

MAX_PARTIAL_CANDIDATES = 8  # rows come in prefix order: the best partner of a row was entered shortly before it


@dataclass(eq=False, slots=True)
class Node:
    key: bytes
    token_ids: list[int]
    block: int
    parent: "Node | None"
    children: dict[bytes, "Node"] = field(default_factory=dict)
    computed: bool = False
    last_used: int = 0


@dataclass(frozen=True, slots=True)
class PartialMatch:
    """A computed block whose first num_tokens tokens are those wanted next."""

    node: Node
    num_tokens: int


class PrefixCache:
    """Cached blocks of one pool. Blocks that only the cache holds are evictable, least recently used first."""

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self.root = Node(hashlib.sha256(b"batchrunner").digest(), [], -1, None)
        self._node_of: dict[int, Node] = {}
        self._by_first_token: dict[tuple[bytes, int], list[Node]] = {}
        self._leaves: list[tuple[int, int, Node]] = []  # heap of (last_used, number, node); entries may be stale
        self._clock = 0
        self.num_evictable = 0
        self.num_evictions = 0

    def __len__(self) -> int:
        return len(self._node_of)

    def node_of(self, block: int) -> Node | None:
        return self._node_of.get(block)

    def child(self, parent: Node, token_ids: list[int]) -> Node | None:
        """The node below parent that holds exactly these block_size tokens."""
        return parent.children.get(_key(parent, token_ids))

    def partial_child(self, parent: Node, token_ids: list[int]) -> PartialMatch | None:
        """The computed node below parent that shares the longest beginning with token_ids, if any shares one token."""
        best: PartialMatch | None = None
        for node in reversed(self._by_first_token.get((parent.key, token_ids[0]), ())):
            length = _common_prefix(node.token_ids, token_ids)
            if node.computed and (best is None or length > best.num_tokens):
                best = PartialMatch(node, length)
        return best

    def insert(self, parent: Node, token_ids: list[int], block: int) -> Node:
        """Enter a block that its request holds; the cache becomes a second holder."""
        node = Node(_key(parent, token_ids), token_ids, block, parent)
        assert node.key not in parent.children
        self._touch(node)
        parent.children[node.key] = node
        siblings = self._by_first_token.setdefault((parent.key, token_ids[0]), [])
        siblings.append(node)
        del siblings[:-MAX_PARTIAL_CANDIDATES]
        self._node_of[block] = node
        self._pool.hold(block)
        return node

    def hold(self, node: Node) -> None:
        """A request takes the node's block into its block table."""
        self._touch(node)
        if self._pool.hold(node.block) == 2:
            self.num_evictable -= 1

    def release(self, block_table: list[int]) -> None:
        """A request gives its blocks back: cached ones become evictable, the others free."""
        for block in reversed(block_table):
            if self._pool.release(block) == 1 and block in self._node_of:
                self._became_unused(self._node_of[block])

    def evict(self) -> None:
        """Free the least recently used leaf. The caller has made sure that num_evictable > 0."""
        while True:
            last_used, _, node = heapq.heappop(self._leaves)
            if last_used == node.last_used and self._is_evictable_leaf(node):
                break
        self.num_evictable -= 1
        self.num_evictions += 1
        self._remove(node)
        parent = node.parent
        if parent is not None and self._is_evictable_leaf(parent):
            self._push(parent)

    def forget(self, node: Node) -> None:
        """Take a node out that was never computed, and those below it; its holders keep their block."""
        if self._node_of.get(node.block) is not node:
            return
        for child in list(node.children.values()):
            self.forget(child)
        if self._pool.ref_counts[node.block] == 1:
            self.num_evictable -= 1
        self._remove(node)

    def check_integrity(self) -> None:
        """Assert what eviction relies on."""
        nodes = list(self._walk())
        assert {id(node) for node in nodes} == {id(node) for node in self._node_of.values()}
        evictable = 0
        for node in nodes:
            assert self._node_of[node.block] is node and len(node.token_ids) == self._pool.block_size
            count = self._pool.ref_counts[node.block]
            evictable += count == 1
            for child in node.children.values():
                assert child.parent is node
                assert self._pool.ref_counts[child.block] <= count, "a child outlives its parent"
        assert evictable == self.num_evictable
        reachable = {id(node) for _, _, node in self._leaves}
        assert all(id(node) in reachable for node in nodes if self._is_evictable_leaf(node)), "a leaf was lost"

    @property
    def cached_blocks(self) -> list[int]:
        return list(self._node_of)

    def _remove(self, node: Node) -> None:
        assert node.parent is not None
        del node.parent.children[node.key]
        del self._node_of[node.block]
        index = (node.parent.key, node.token_ids[0])
        siblings = self._by_first_token.get(index, [])
        if node in siblings:
            siblings.remove(node)
        if not siblings:
            self._by_first_token.pop(index, None)
        self._pool.release(node.block)

    def _touch(self, node: Node) -> None:
        self._clock += 1
        node.last_used = self._clock

    def _became_unused(self, node: Node) -> None:
        self.num_evictable += 1
        if not node.children:
            self._push(node)

    def _push(self, node: Node) -> None:
        if len(self._leaves) > 4 * len(self._node_of) + 64:
            self._leaves = [
                entry for entry in self._leaves if entry[0] == entry[2].last_used and self._is_evictable_leaf(entry[2])
            ]
            heapq.heapify(self._leaves)
        self._clock += 1
        heapq.heappush(self._leaves, (node.last_used, self._clock, node))

    def _is_evictable_leaf(self, node: Node) -> bool:
        return self._node_of.get(node.block) is node and not node.children and self._pool.ref_counts[node.block] == 1

    def _walk(self) -> Iterator[Node]:
        stack = list(self.root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())


def _key(parent: Node, token_ids: list[int]) -> bytes:
    return hashlib.sha256(parent.key + array("I", token_ids).tobytes()).digest()


def _common_prefix(left: list[int], right: list[int]) -> int:
    length = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        length += 1
    return length
