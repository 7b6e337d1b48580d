"""Attention over some of a row's keys, and how two or more of them are merged.

    lse = log(Σ exp(lse_i) [+ exp(sink)])      out = Σ exp(lse_i - lse) · out_i

The sums are taken relative to the largest lse, so that nothing overflows. A state without keys has lse = -inf.
"""

# ruff: noqa: N803 (constants in capitals, as Triton has them)

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from batchrunner.kernels.gpu.specialization import HEAD_DIMS, TYPE_NAMES, Specialization, launch_options

SPLIT_SIZE = 1024  # keys of one split
ROW_TILE = 16  # rows of two states merged by one program
SPLIT_TILE = 16  # splits of one row merged at once
LAUNCHED = launch_options(num_warps=4, num_stages=1)


@dataclass(frozen=True, slots=True)
class PartialAttention:
    """Attention over some of a row's keys: enough to go on with the others later.

    out [T, num_heads, value_dim] float32, normalised over the keys seen; lse [T, num_heads] float32, the natural
    log-sum-exp of their scores. Where no key was seen out is 0 and lse is -inf.
    """

    out: Tensor
    lse: Tensor


@triton.jit(do_not_specialize=["num_rows"])
def merge_states_kernel(
    a_out,
    a_lse,
    b_out,
    b_lse,
    out,
    lse,
    num_rows,
    VALUE_DIM: tl.constexpr,
    VALUE_TILE: tl.constexpr,
    ROW_TILE: tl.constexpr,
):
    """Program (tile of rows, a row being a head of a token)."""
    rows = tl.program_id(0).to(tl.int64) * ROW_TILE + tl.arange(0, ROW_TILE)
    is_row = rows < num_rows
    dims = tl.arange(0, VALUE_TILE)[None, :]
    offsets = rows[:, None] * VALUE_DIM + dims
    mask = is_row[:, None] & (dims < VALUE_DIM)
    log_a = tl.load(a_lse + rows, mask=is_row, other=0.0)
    log_b = tl.load(b_lse + rows, mask=is_row, other=0.0)
    maximum = tl.maximum(log_a, log_b)
    finite_max = tl.where(maximum == float("-inf"), 0.0, maximum)
    weight_a = tl.exp(log_a - finite_max)
    weight_b = tl.exp(log_b - finite_max)
    acc = weight_a[:, None] * tl.load(a_out + offsets, mask=mask, other=0.0)
    acc += weight_b[:, None] * tl.load(b_out + offsets, mask=mask, other=0.0)
    total = weight_a + weight_b
    total = tl.where(total > 0, total, 1.0)
    tl.store(out + offsets, acc / total[:, None], mask=mask)
    tl.store(lse + rows, maximum + tl.log(total), mask=is_row)


def merge_states(a: PartialAttention, b: PartialAttention) -> PartialAttention:
    """The state over the keys of both, which share none; all tensors contiguous, of equal shapes."""
    merged = PartialAttention(torch.empty_like(a.out), torch.empty_like(a.lse))
    num_rows, value_dim = a.lse.numel(), a.out.shape[-1]
    merge_states_kernel[(triton.cdiv(num_rows, ROW_TILE),)](
        a.out,
        a.lse,
        b.out,
        b.lse,
        merged.out,
        merged.lse,
        num_rows,
        VALUE_DIM=value_dim,
        VALUE_TILE=triton.next_power_of_2(value_dim),
        ROW_TILE=ROW_TILE,
        **LAUNCHED,
    )
    return merged


def merge_states_reference(a: PartialAttention, b: PartialAttention) -> PartialAttention:
    """The same in plain torch."""
    lse = torch.logaddexp(a.lse, b.lse)
    finite = lse.masked_fill(lse == float("-inf"), 0.0)
    weights = [torch.exp(state.lse - finite)[..., None] for state in (a, b)]
    return PartialAttention(weights[0] * a.out + weights[1] * b.out, lse)


@triton.jit(do_not_specialize=["max_splits"])
def merge_splits_kernel(
    split_out,
    split_lse,
    rows,
    num_keys,
    prefix_out,
    prefix_lse,
    sinks,
    out,
    max_splits,
    VALUE_DIM: tl.constexpr,
    VALUE_TILE: tl.constexpr,
    SPLIT_SIZE: tl.constexpr,
    SPLIT_TILE: tl.constexpr,
):
    """Program (request, head). Splits beyond the request's keys hold nothing and are not read."""
    request = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    num_heads = tl.num_programs(1)
    num_splits = (tl.load(num_keys + request) + SPLIT_SIZE - 1) // SPLIT_SIZE
    row_head = tl.load(rows + request).to(tl.int64) * num_heads + head
    dims = tl.arange(0, VALUE_TILE)
    is_dim = dims < VALUE_DIM

    running_max = tl.full([], float("-inf"), tl.float32)
    running_sum = tl.zeros([], tl.float32)
    acc = tl.zeros([VALUE_TILE], tl.float32)
    if prefix_out is not None:
        running_max = tl.load(prefix_lse + row_head)
        running_sum = tl.where(running_max == float("-inf"), 0.0, 1.0)
        acc = tl.load(prefix_out + row_head * VALUE_DIM + dims, mask=is_dim, other=0.0)
    for split_begin in range(0, num_splits, SPLIT_TILE):
        splits = split_begin + tl.arange(0, SPLIT_TILE)
        is_split = splits < num_splits
        states = (request * num_heads + head) * max_splits + splits
        lse = tl.load(split_lse + states, mask=is_split, other=float("-inf"))
        mask = is_split[:, None] & is_dim[None, :]
        values = tl.load(split_out + states[:, None] * VALUE_DIM + dims[None, :], mask=mask, other=0.0)
        new_max = tl.maximum(running_max, tl.max(lse, axis=0))
        finite_max = tl.where(new_max == float("-inf"), 0.0, new_max)
        weights = tl.exp(lse - finite_max)
        decay = tl.exp(running_max - finite_max)
        running_max = new_max
        running_sum = running_sum * decay + tl.sum(weights, axis=0)
        acc = acc * decay + tl.sum(weights[:, None] * values, axis=0)
    if sinks is not None:
        sink = tl.load(sinks + head).to(tl.float32)
        new_max = tl.maximum(running_max, sink)
        decay = tl.exp(running_max - new_max)
        running_sum = running_sum * decay + tl.exp(sink - new_max)
        acc *= decay
    # A token sees itself at least, so the sum is not 0.
    tl.store(out + row_head * VALUE_DIM + dims, (acc / running_sum).to(out.dtype.element_ty), mask=is_dim)


def merge_splits(
    split_out: Tensor,
    split_lse: Tensor,
    rows: Tensor,
    num_keys: Tensor,
    prefix: PartialAttention | None,
    sinks: Tensor | None,
    out: Tensor,
) -> None:
    """Merge the splits of B requests with the prefix's state and the sinks; write their rows of out.

    split_out [B, num_heads, max_splits, value_dim], split_lse [B, num_heads, max_splits]: float32, a split for every
    SPLIT_SIZE keys of num_keys [B] int32. rows [B] int32: the requests' rows in prefix and in out [T, num_heads,
    value_dim].
    """
    num_requests, num_heads, max_splits, value_dim = split_out.shape
    merge_splits_kernel[(num_requests, num_heads)](
        split_out,
        split_lse,
        rows,
        num_keys,
        None if prefix is None else prefix.out,
        None if prefix is None else prefix.lse,
        sinks,
        out,
        max_splits,
        VALUE_DIM=value_dim,
        VALUE_TILE=triton.next_power_of_2(value_dim),
        SPLIT_SIZE=SPLIT_SIZE,
        SPLIT_TILE=SPLIT_TILE,
        **LAUNCHED,
    )


def merge_splits_reference(
    split_out: Tensor,
    split_lse: Tensor,
    rows: Tensor,
    num_keys: Tensor,
    prefix: PartialAttention | None,
    sinks: Tensor | None,
    out: Tensor,
) -> None:
    """The same in plain torch."""
    for request, (row, keys) in enumerate(zip(rows.tolist(), num_keys.tolist(), strict=True)):
        num_splits = triton.cdiv(keys, SPLIT_SIZE)
        outs, lses = split_out[request, :, :num_splits], split_lse[request, :, :num_splits]
        if prefix is not None:
            outs = torch.cat([outs, prefix.out[row][:, None]], dim=1)
            lses = torch.cat([lses, prefix.lse[row][:, None]], dim=1)
        if sinks is not None:
            outs = torch.cat([outs, torch.zeros_like(outs[:, :1])], dim=1)
            lses = torch.cat([lses, sinks.float()[:, None]], dim=1)
        out[row] = (torch.softmax(lses, dim=1)[..., None] * outs).sum(dim=1).to(out.dtype)


def specializations() -> list[Specialization]:
    """Both kernels, for all head dimensions and types; the second with all options and without any."""
    found = []
    states = dict.fromkeys(("a_out", "a_lse", "b_out", "b_lse", "out", "lse"), "*fp32")
    for dim in HEAD_DIMS:
        tile: dict[str, object] = {"VALUE_DIM": dim, "VALUE_TILE": triton.next_power_of_2(dim)}
        fixed = tile | {"ROW_TILE": ROW_TILE}
        signature = states | {"num_rows": "i32"} | dict.fromkeys(fixed, "constexpr")
        label = f"merge_states_kernel {dim}"
        found.append(Specialization(merge_states_kernel, signature, fixed, LAUNCHED, label))
        for name in TYPE_NAMES.values():
            options = {"prefix_out": "*fp32", "prefix_lse": "*fp32", "sinks": f"*{name}"}
            for has_options in (False, True):
                known = {"split_out": "*fp32", "split_lse": "*fp32", "rows": "*i32", "num_keys": "*i32"} | options
                known |= {"out": f"*{name}", "max_splits": "i32"}
                fixed = tile | {"SPLIT_SIZE": SPLIT_SIZE, "SPLIT_TILE": SPLIT_TILE}
                if not has_options:
                    fixed |= dict.fromkeys(options)
                signature = {arg: "constexpr" if arg in fixed else known[arg] for arg in merge_splits_kernel.arg_names}
                label = f"merge_splits_kernel {name} {dim} {'all options' if has_options else 'no options'}"
                found.append(Specialization(merge_splits_kernel, signature, fixed, LAUNCHED, label))
    return found
