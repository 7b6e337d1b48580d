"""Paged attention against a direct computation, on odd shapes."""

import random
from functools import cache

import pytest
import torch

from batchrunner.kernels.attention_work import AttentionOptions, AttentionWork, PrefixGroup, Segment
from batchrunner.kernels.cpu.cpu_kernels import CpuKernels
from batchrunner.kernels.interface import Kernels
from batchrunner.kernels.paged_attention import group_decodes
from batchrunner.kernels.torch_kernels import TorchKernels

CPU = torch.device("cpu")
SHAPES = [(4, 2, 16, 16), (3, 3, 10, 10), (9, 3, 64, 64), (2, 1, 80, 64), (12, 1, 32, 32)]
OPTIONS = ["plain", "window", "wide window", "softcap and sinks", "head scales"]


@cache
def kernels(name: str, head_dim: int, value_dim: int) -> Kernels:
    return TorchKernels(CPU) if name == "torch" else CpuKernels([(head_dim, value_dim)])


def options(kind: str, num_heads: int, head_dim: int) -> AttentionOptions:
    scale = head_dim**-0.5
    if kind == "window":
        return AttentionOptions(scale, window=6)
    if kind == "wide window":
        return AttentionOptions(scale, window=45)
    if kind == "softcap and sinks":
        return AttentionOptions(scale, softcap=3.0, sinks=torch.randn(num_heads))
    if kind == "head scales":
        return AttentionOptions(scale, head_scales=torch.rand(num_heads) + 0.5)
    return AttentionOptions(scale)


class Cache:
    """A cache filled with the keys and values of made-up requests, in blocks in random order."""

    def __init__(self, num_kv_heads: int, head_dim: int, value_dim: int, block_size: int, num_tokens: int) -> None:
        num_blocks = num_tokens // block_size + 40
        self.block_size = block_size
        # NaN is what a request that went wrong leaves in a block; nobody else may see it.
        self.k = torch.full((num_blocks, num_kv_heads, block_size, head_dim), torch.nan)
        self.v = torch.full((num_blocks, num_kv_heads, block_size, value_dim), torch.nan)
        self.free = random.sample(range(num_blocks), num_blocks)

    def add(self, use: Kernels, num_tokens: int, table: list[int] | None = None) -> list[int]:
        """A block table for num_tokens, with random KV in its new blocks; table: blocks it begins with."""
        table = list(table or [])
        first = len(table) * self.block_size
        table += [self.free.pop() for _ in range(-(-num_tokens // self.block_size) - len(table))]
        positions = torch.arange(first, num_tokens)
        slots = torch.tensor(table)[positions // self.block_size] * self.block_size + positions % self.block_size
        shape = (len(positions), self.k.shape[1])
        use.write_kv(torch.randn(*shape, self.k.shape[3]), torch.randn(*shape, self.v.shape[3]), self.k, self.v, slots)
        return table

    def read(self, table: list[int], num_tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [num_tokens, kv heads, dim]."""
        keys = [self.k[table[p // self.block_size], :, p % self.block_size] for p in range(num_tokens)]
        values = [self.v[table[p // self.block_size], :, p % self.block_size] for p in range(num_tokens)]
        return torch.stack(keys), torch.stack(values)

    def check(self, out: torch.Tensor, query: torch.Tensor, work: AttentionWork, options: AttentionOptions) -> None:
        for segment in work.segments:
            key, value = self.read(list(segment.block_table), segment.context_len)
            for i in range(segment.num_tokens):
                row, position = segment.start + i, segment.context_len - segment.num_tokens + i
                expected = direct(query[row], key, value, position, options)
                torch.testing.assert_close(out[row].double(), expected, atol=3e-6, rtol=3e-5)


def direct(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, position: int, options: AttentionOptions
) -> torch.Tensor:
    """Attention of one query token [heads, dim] over keys and values [tokens, kv heads, dim], in float64."""
    group = query.shape[0] // key.shape[1]
    low = max(0, position - options.window + 1) if options.window else 0
    out = []
    for head in range(query.shape[0]):
        k, v = (x[low : position + 1, head // group].double() for x in (key, value))
        scale = options.scale if options.head_scales is None else options.scale * options.head_scales[head].double()
        scores = k @ query[head].double() * scale
        if options.softcap:
            scores = torch.tanh(scores / options.softcap) * options.softcap
        sink = [] if options.sinks is None else [options.sinks[head : head + 1].double()]
        weights = torch.softmax(torch.cat([scores, *sink]), dim=0)[: len(scores)]
        out.append(weights @ v)
    return torch.stack(out)


@pytest.mark.parametrize("name", ["torch", "C"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("block_size", [1, 5, 16])
@pytest.mark.parametrize("kind", OPTIONS)
def test_a_mixed_step_equals_the_direct_computation(
    name: str, shape: tuple[int, int, int, int], block_size: int, kind: str
) -> None:
    torch.manual_seed(block_size)
    random.seed(block_size)
    heads, kv_heads, dim, value_dim = shape
    use, chosen = kernels(name, dim, value_dim), options(kind, heads, dim)
    cache = Cache(kv_heads, dim, value_dim, block_size, 600)
    segments, row = [], 0
    for start, new in [(0, 1), (12, 1), (0, 9), (7, 2), (7, 11), (133, 1), (16, 1), (3, 1), (40, 70)]:
        segments.append(Segment(row, new, start + new, cache.add(use, start + new)))
        row += new
    query = torch.randn(row, heads, dim)
    work = AttentionWork(segments)
    out = use.attend(query, cache.k, cache.v, use.plan(work, block_size), chosen)
    cache.check(out, query, work, chosen)


@pytest.mark.parametrize("name", ["torch", "C"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("block_size", [1, 5, 16])
@pytest.mark.parametrize("kind", OPTIONS)
def test_nested_groups_equal_the_direct_computation(
    name: str, shape: tuple[int, int, int, int], block_size: int, kind: str
) -> None:
    """Seven requests share 40 blocks' worth of one beginning, four of them two blocks more; a chunk runs beside."""
    torch.manual_seed(block_size)
    random.seed(block_size)
    heads, kv_heads, dim, value_dim = shape
    use, chosen = kernels(name, dim, value_dim), options(kind, heads, dim)
    cache = Cache(kv_heads, dim, value_dim, block_size, 40 * block_size + 400)
    outer = cache.add(use, 40 * block_size)
    inner = cache.add(use, 42 * block_size, outer)
    segments = []
    for row in range(7):
        begin = inner if row < 4 else outer
        length = len(begin) * block_size
        table = cache.add(use, length + 1 + row * 5, begin)
        segments.append(Segment(row, 1, length + 1 + row * 5, table, kv_begin=length))
    segments.append(Segment(7, 9, 20, cache.add(use, 20)))
    levels = [
        [PrefixGroup(range(7), segments[6].block_table, 0, 40 * block_size)],
        [PrefixGroup(range(4), segments[2].block_table, 40 * block_size, 42 * block_size)],
    ]
    query = torch.randn(16, heads, dim)
    work = AttentionWork(segments, levels)
    out = use.attend(query, cache.k, cache.v, use.plan(work, block_size), chosen)
    cache.check(out, query, work, chosen)


def test_a_query_in_the_middle_of_a_wider_row_is_read_in_place() -> None:
    torch.manual_seed(0)
    use = kernels("C", 16, 16)
    cache = Cache(2, 16, 16, 4, 50)
    work = AttentionWork([Segment(0, 3, 20, cache.add(use, 20))])
    wide = torch.randn(3, 8, 16)
    out = use.attend(wide[:, :4], cache.k, cache.v, use.plan(work, 4), AttentionOptions(0.25))
    cache.check(out, wide[:, :4], work, AttentionOptions(0.25))


def test_decodes_of_very_different_lengths_are_not_padded_together() -> None:
    segments = [Segment(i, 1, n, range(n)) for i, n in enumerate([100, 3, 4, 90, 1, 95])]
    groups = group_decodes(segments, CPU)
    rows = [group.rows.tolist() for group in groups]
    assert sorted(row for group in rows for row in group) == [0, 1, 2, 3, 4, 5]
    for group in groups:
        padded = group.blocks.numel()
        assert int(group.context_lens.sum()) >= 0.75 * padded


def test_no_decodes_make_no_groups() -> None:
    assert group_decodes([], CPU) == []
