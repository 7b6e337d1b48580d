"""What the tests of the attention kernels share: a paged cache with requests in it, and attention written as a loop."""

import math
from dataclasses import dataclass
from typing import Any

import torch
import triton.language as tl
from torch import Tensor
from triton.runtime.interpreter import InterpreterBuilder

from batchrunner.kernels.attention_work import AttentionOptions

# float32 differs by the order of sums. The 16-bit types round the weights before they meet the values, and the result;
# values and outputs are of the order of 1, so the bounds are a few units in the last place of each type.
TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}

# Here and not in conftest.py: attention alone uses tl.dot, and each of its tests imports this file.
_create_dot = InterpreterBuilder.create_dot


def _create_dot_of_bfloat16(self: Any, a: Any, b: Any, *rest: Any) -> Any:
    """The interpreter of Triton 3.9 keeps bfloat16 as integers of 16 bits, and tl.dot would multiply those."""
    operands = (self.cast_impl(x, tl.float32) if x.dtype.scalar == tl.bfloat16 else x for x in (a, b))
    return _create_dot(self, *operands, *rest)


InterpreterBuilder.create_dot = _create_dot_of_bfloat16


@dataclass(frozen=True)
class Heads:
    num_kv_heads: int
    group_size: int
    head_dim: int
    value_dim: int

    @property
    def num_heads(self) -> int:
        return self.num_kv_heads * self.group_size


class PagedCase:
    """A cache whose blocks lie in random order; what no request has written is NaN, so that reading it shows."""

    def __init__(self, heads: Heads, block_size: int, context_lens: list[int], dtype: torch.dtype, seed: int = 0):
        self.heads, self.block_size, self.dtype = heads, block_size, dtype
        self.generator = torch.Generator().manual_seed(seed)
        counts = [math.ceil(length / block_size) for length in context_lens]
        order = (1 + torch.randperm(sum(counts), generator=self.generator)).to(torch.int32)
        self.context_lens = torch.tensor(context_lens, dtype=torch.int32)
        self.block_tables = torch.zeros(len(counts), max(counts), dtype=torch.int32)
        shape = (1 + sum(counts), heads.num_kv_heads, block_size)
        self.k_cache = torch.full((*shape, heads.head_dim), float("nan"), dtype=dtype)
        self.v_cache = torch.full((*shape, heads.value_dim), float("nan"), dtype=dtype)
        for request, blocks in enumerate(order.split(counts)):
            self.block_tables[request, : len(blocks)] = blocks
            for position in range(context_lens[request]):
                block, offset = int(blocks[position // block_size]), position % block_size
                self.k_cache[block, :, offset] = self.normal(heads.num_kv_heads, heads.head_dim)
                self.v_cache[block, :, offset] = self.normal(heads.num_kv_heads, heads.value_dim)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator).to(self.dtype)

    def query(self, num_tokens: int) -> Tensor:
        """A query that is part of a wider tensor, as the models' are."""
        heads = self.heads
        return self.normal(num_tokens, heads.num_heads + 3, heads.head_dim)[:, : heads.num_heads]

    def empty_out(self, num_tokens: int) -> Tensor:
        return torch.full((num_tokens, self.heads.num_heads, self.heads.value_dim), 7.0, dtype=self.dtype)

    def options(self, *names: str, window: int = 21) -> AttentionOptions:
        """The named options on: window, softcap (low enough to bend the scores), sinks, head_scales."""
        return AttentionOptions(
            scale=self.heads.head_dim**-0.5,
            window=window if "window" in names else 0,
            softcap=1.5 if "softcap" in names else 0.0,
            sinks=self.normal(self.heads.num_heads) if "sinks" in names else None,
            head_scales=self.normal(self.heads.num_heads) if "head_scales" in names else None,
        )


def attend_directly(
    case: PagedCase, query: Tensor, request: int, position: int, options: AttentionOptions, keys: range | None = None
) -> tuple[Tensor, Tensor]:
    """out [num_heads, value_dim] and lse [num_heads], in float64, of one token over keys (or all before it)."""
    keys = range(position + 1) if keys is None else keys
    out = torch.zeros(case.heads.num_heads, case.heads.value_dim, dtype=torch.float64)
    lse = torch.full((case.heads.num_heads,), float("-inf"), dtype=torch.float64)
    for head in range(case.heads.num_heads):
        kv_head = head // case.heads.group_size
        scores, values = [], []
        for key in keys:
            if options.window and key <= position - options.window:
                continue
            block = int(case.block_tables[request, key // case.block_size])
            k = case.k_cache[block, kv_head, key % case.block_size].double()
            score = float(query[head].double() @ k) * options.scale
            if options.head_scales is not None:
                score *= float(options.head_scales[head])
            if options.softcap:
                score = options.softcap * math.tanh(score / options.softcap)
            scores.append(score)
            values.append(case.v_cache[block, kv_head, key % case.block_size].double())
        if options.sinks is not None:
            scores.append(float(options.sinks[head]))
            values.append(torch.zeros(case.heads.value_dim, dtype=torch.float64))
        if scores:
            total = sum(math.exp(score) for score in scores)
            lse[head] = math.log(total)
            out[head] = sum(math.exp(score) / total * value for score, value in zip(scores, values, strict=True))
    return out, lse
