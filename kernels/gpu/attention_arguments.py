"""What every attention kernel is given, in four groups, and the forms in which it is compiled.

    query    rows · token_stride · head_stride        the vectors of the packed tokens, [T, num_heads, head_dim]
    cache    k · v · num_heads                        of one layer, each [num_blocks, num_kv_heads, block_size, dim]
    scoring  scale · window · softcap · head_scales   from a product to a score; what is off is None, and compiled away
    sizes    group · head_dim · value_dim · head_tile · value_tile · block · key_tile       constants

A group is a named tuple: Triton takes its members as so many arguments, and the constants among them as constants.
"""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from batchrunner.kernels.attention_work import AttentionOptions
from batchrunner.kernels.gpu.specialization import HEAD_DIMS, TYPE_NAMES, Specialization

GROUP_SIZE = 4  # query heads of a KV head, in the forms that are compiled ahead of time
BLOCK_SIZE = 16


class Query(NamedTuple):
    rows: Any
    token_stride: Any
    head_stride: Any


class Cache(NamedTuple):
    k: Any
    v: Any
    num_heads: Any


class Scoring(NamedTuple):
    """head_scales [num_heads]: another factor for each query head."""

    scale: Any
    window: Any
    softcap: Any
    head_scales: Any


class Sizes(NamedTuple):
    """group: query heads of a KV head. block: tokens of a block. The tiles are powers of two; key_tile counts keys."""

    group: Any
    head_dim: Any
    value_dim: Any
    head_tile: Any
    value_tile: Any
    block: Any
    key_tile: Any


def shared_arguments(query: Tensor, k_cache: Tensor, v_cache: Tensor, options: AttentionOptions) -> dict[str, Any]:
    assert query.stride(-1) == 1 and k_cache.is_contiguous() and v_cache.is_contiguous()
    num_kv_heads, block_size, head_dim = k_cache.shape[1:]
    sizes = _sizes(query.shape[1] // num_kv_heads, head_dim, v_cache.shape[3], block_size, query.dtype)
    return {
        "query": Query(query, query.stride(0), query.stride(1)),
        "cache": Cache(k_cache, v_cache, num_kv_heads),
        "scoring": Scoring(options.scale, options.window or None, options.softcap or None, options.head_scales),
        "sizes": Sizes(*map(tl.constexpr, sizes)),
    }


def _sizes(group: int, head_dim: int, value_dim: int, block_size: int, dtype: torch.dtype) -> Sizes:
    # Tensor cores take tiles of at least 16 by 16. Larger tiles of keys would spill registers.
    head_tile = max(16, triton.next_power_of_2(head_dim))
    return Sizes(
        group=group,
        head_dim=head_dim,
        value_dim=value_dim,
        head_tile=head_tile,
        value_tile=max(16, triton.next_power_of_2(value_dim)),
        block=block_size,
        key_tile=32 if head_tile <= 128 and dtype.itemsize == 2 else 16,
    )


def attention_specializations(
    kernel: Any, types: dict[str, Any], launched_for: Callable[[int, torch.dtype], dict[str, int]]
) -> list[Specialization]:
    """One attention kernel for all head dimensions and types, with all options off and on.

    types: those of the kernel's arguments that shared_arguments doesn't give, but for sinks and what has the query's
    type, which is "*". launched_for: head dimension and type → the constants that it doesn't give, and the
    launch_options.
    """
    found = []
    for head_dim, (dtype, name), has_options in itertools.product(HEAD_DIMS, TYPE_NAMES.items(), (False, True)):
        pointer = f"*{name}"
        launched = launched_for(head_dim, dtype)
        options = {option: launched[option] for option in launched if option not in kernel.arg_names}
        known = {name: pointer if kind == "*" else kind for name, kind in types.items()}
        known |= {
            "query": Query(pointer, "i32", "i32"),
            "cache": Cache(pointer, pointer, "i32"),
            "scoring": Scoring("fp32", *(("i32", "fp32", pointer) if has_options else ("constexpr",) * 3)),
            "sizes": Sizes(*("constexpr",) * len(Sizes._fields)),
            "sinks": pointer if has_options else "constexpr",
        }
        known |= dict.fromkeys(launched, "constexpr")
        values = {"sizes": _sizes(GROUP_SIZE, head_dim, head_dim, BLOCK_SIZE, dtype), **launched}
        if not has_options:
            values |= {"scoring": Scoring(*[None] * len(Scoring._fields)), "sinks": None}
        signature = {arg: known[arg] for arg in kernel.arg_names}
        constants = {arg: values[arg] for arg in kernel.arg_names if arg in values}
        label = f"{kernel.__name__} {name} {head_dim} {'all options' if has_options else 'no options'}"
        found.append(Specialization(kernel, signature, constants, options, label))
    return found
