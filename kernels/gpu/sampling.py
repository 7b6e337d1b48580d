"""Sampling without a sort: temperature, top_k, top_p and min_p, then the inverse CDF at the request's random number.

    w = exp((logit - max) / temperature)      walk: tokens by logit descending, token id ascending among equals
    top_k  keeps the first k of the walk      top_p  keeps a token while the w before it is below top_p · Σ w of top_k's
    min_p  keeps w ≥ min_p                    choice: the first token whose cumulative w exceeds u · Σ w of those kept

All three keep a beginning of the walk, so what is left is known by its Σ w alone: the least of theirs. A place in the
walk is found by radix, four bits of the logit at a time from the top: the last digit for which Σ w of the logits at
or above it exceeds the target. Without top_k and top_p the walk is by token id, as on the CPU.

Weights are fixed-point integers (logit_weights.py): sums are exact in any order, and the result is the same on every
chip but for the rounding of w itself.
"""

# ruff: noqa: N803 (constants in capitals, as Triton has them)

import torch
import triton
import triton.language as tl
from torch import Tensor

from batchrunner.kernels.gpu.logit_weights import LOG2_E, MAX_SCALE, ONE, load_logits, weight_at, weights_of
from batchrunner.kernels.gpu.philox import uniform, uniform_reference
from batchrunner.kernels.gpu.specialization import TYPE_NAMES, Specialization, launch_options

TILE = 2048
LAUNCHED = launch_options(num_warps=8, num_stages=1)
# A program loads one value of each: there is nothing to gain from their alignment, which the number of rows decides.
ROW_PARAMETERS = ("temperatures_ptr", "top_ks_ptr", "top_ps_ptr", "min_ps_ptr", "keys_ptr", "positions_ptr")
MAX_VOCABULARY = 1 << 20


@triton.jit
def _largest(row_ptr, size, TILE: tl.constexpr):
    """The largest logit and the first token that has it."""
    largest = float("-inf")
    token = 0
    for start in range(0, size, TILE):
        logits, _ = load_logits(row_ptr, start + tl.arange(0, TILE), size)
        value, index = tl.max(logits, axis=0, return_indices=True)
        token = tl.where(value > largest, start + index, token)
        largest = tl.maximum(value, largest)
    return largest, token


@triton.jit
def _sums(row_ptr, size, largest, scale, place, min_weight, TILE: tl.constexpr):
    """Σ of the weights of logits above a place, and Σ of the weights that are at least min_weight."""
    above = tl.full([TILE], 0, tl.int64)
    heavy = tl.full([TILE], 0, tl.int64)
    for start in range(0, size, TILE):
        logits, places = load_logits(row_ptr, start + tl.arange(0, TILE), size)
        weights = weights_of(logits, largest, scale)
        above += tl.where(places > place, weights, 0)
        heavy += tl.where(weights >= min_weight, weights, 0)
    return tl.sum(above), tl.sum(heavy)


@triton.jit
def _find(row_ptr, size, largest, scale, target, TILE: tl.constexpr):
    """The last place such that Σ of the weights at or above it exceeds target, and Σ of the weights above it."""
    digits = tl.arange(0, 16)
    place = tl.full([], 0, tl.uint32)
    above = tl.full([], 0, tl.int64)
    for step in range(8):
        shift = 28 - 4 * step
        sums = tl.full([16], 0, tl.int64)
        for start in range(0, size, TILE):
            logits, places = load_logits(row_ptr, start + tl.arange(0, TILE), size)
            # The next digit where all digits before it are those of place, otherwise 16 and more.
            digit = (places ^ place) >> shift
            # After two or three digits, few tiles still have a candidate.
            if tl.min(digit) < 16:
                weights = weights_of(logits, largest, scale)
                sums += tl.sum(tl.where(digit[None, :] == digits[:, None], weights[None, :], 0), axis=1)
        from_digit = above + tl.cumsum(sums, reverse=True)
        digit = tl.maximum(tl.sum((from_digit > target).to(tl.int32)) - 1, 0)
        place += digit.to(tl.uint32) << shift
        above += tl.sum(tl.where(digits > digit, sums, 0))
    return place, above


@triton.jit
def _walk_ids(row_ptr, size, largest, scale, first, last, min_weight, target, TILE: tl.constexpr):
    """The first token id at which the cumulative weight exceeds target, or -1.

    Only logits at places from first to last count, and of these only weights of at least min_weight.
    """
    token = -1
    before = tl.full([], 0, tl.int64)
    for start in range(0, size, TILE):
        columns = start + tl.arange(0, TILE)
        logits, places = load_logits(row_ptr, columns, size)
        weights = weights_of(logits, largest, scale)
        weights = tl.where((places >= first) & (places <= last) & (weights >= min_weight), weights, 0)
        found = tl.min(tl.where(before + tl.cumsum(weights) > target, columns, size))
        token = tl.where((token < 0) & (found < size), found, token)
        before += tl.sum(weights)
    return token


@triton.jit(do_not_specialize=ROW_PARAMETERS)
def _sample_kernel(
    logits_ptr,
    temperatures_ptr,
    top_ks_ptr,
    top_ps_ptr,
    min_ps_ptr,
    keys_ptr,
    positions_ptr,
    token_ids_ptr,
    logits_stride,
    size,
    TILE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    row_ptr = logits_ptr + row * logits_stride
    temperature = tl.load(temperatures_ptr + row)
    largest, token = _largest(row_ptr, size, TILE)
    if temperature > 0:
        scale = tl.minimum(LOG2_E / temperature, MAX_SCALE).to(tl.float32)
        top_k = tl.minimum(tl.load(top_ks_ptr + row), size)
        top_p = tl.load(top_ps_ptr + row)
        min_weight = (tl.load(min_ps_ptr + row) * ONE).to(tl.int64)
        # The place of -MAX_LOGIT is above 0: all logits that weigh anything lie above 0 and below last.
        first = tl.full([], 0, tl.uint32)
        last = tl.full([], 0xFFFFFFFF, tl.uint32)

        kept, heavy = _sums(row_ptr, size, largest, scale, first, min_weight, TILE)
        if top_k > 0:
            place, count_above = _find(row_ptr, size, largest, 0.0, (top_k - 1) * ONE, TILE)
            above, _ = _sums(row_ptr, size, largest, scale, place, min_weight, TILE)
            kept = tl.minimum(kept, above + (top_k - count_above // ONE) * weight_at(place, largest, scale))
        if top_p < 1.0:
            # A token stays while the sum before it is below reach.
            reach = tl.ceil(top_p * kept.to(tl.float64)).to(tl.int64)
            place, above = _find(row_ptr, size, largest, scale, reach - 1, TILE)
            weight = weight_at(place, largest, scale)
            kept = tl.minimum(kept, above + (reach - above + weight - 1) // weight * weight)
        kept = tl.minimum(kept, heavy)

        u = uniform(tl.load(keys_ptr + 2 * row), tl.load(keys_ptr + 2 * row + 1), tl.load(positions_ptr + row))
        # u · kept can round up to kept; the last token with any probability is meant then.
        target = tl.minimum((u * kept.to(tl.float64)).to(tl.int64), kept - 1)
        if (top_k > 0) | (top_p < 1.0):
            first, above = _find(row_ptr, size, largest, scale, target, TILE)
            last = first
            target -= above
        found = _walk_ids(row_ptr, size, largest, scale, first, last, min_weight, target, TILE)
        # No token has any weight where all logits are -inf or NaN.
        token = tl.where(found < 0, token, found)
    tl.store(token_ids_ptr + row, token.to(tl.int64))


def sample(
    logits: Tensor,
    temperatures: Tensor,
    top_ks: Tensor,
    top_ps: Tensor,
    min_ps: Tensor,
    keys: Tensor,
    positions: Tensor,
) -> Tensor:
    """The next token id [S] int64 of each row of logits [S, V], float32, float16 or bfloat16, last dim contiguous.

    temperatures, top_ps, min_ps: [S] float64. top_ks, positions: [S] int64. keys: [S, 2] int64, the bits of the low
    and the high half of the request's random key. Temperature 0 takes the largest logit, the first of equals; top_k 0,
    top_p 1 and min_p 0 are off. NaN counts as -inf. Raises ValueError where V exceeds 2^20.
    """
    num_rows, size = logits.shape
    if size > MAX_VOCABULARY:
        raise ValueError(f"sampling takes vocabularies of up to {MAX_VOCABULARY} tokens, got {size}")
    token_ids = torch.empty(num_rows, dtype=torch.int64, device=logits.device)
    parameters = (temperatures, top_ks, top_ps, min_ps, keys, positions)
    _sample_kernel[(num_rows,)](logits, *parameters, token_ids, logits.stride(0), size, TILE=TILE, **LAUNCHED)
    return token_ids


def sample_reference(
    logits: Tensor,
    temperatures: Tensor,
    top_ks: Tensor,
    top_ps: Tensor,
    min_ps: Tensor,
    keys: Tensor,
    positions: Tensor,
) -> Tensor:
    """The twin of sample in plain torch, with a stable sort and float64; it does not take NaN."""
    uniforms = uniform_reference(keys, positions)
    token_ids = []
    for row in range(len(logits)):
        temperature, top_k, top_p = float(temperatures[row]), int(top_ks[row]), float(top_ps[row])
        if temperature == 0:
            token_ids.append(int(logits[row].argmax()))
            continue
        probs = torch.softmax(logits[row].double() / temperature, dim=-1)
        walk = torch.arange(len(probs))
        if top_k or top_p < 1:
            probs, walk = probs.sort(descending=True, stable=True)
            probs = probs[: top_k or len(probs)]
            probs = probs[probs.cumsum(-1) - probs < top_p * probs.sum()]
        probs = torch.where(probs >= min_ps[row] * probs.max(), probs, 0.0)
        cdf = probs.cumsum(-1)
        index = min(int((cdf <= uniforms[row] * cdf[-1]).sum()), int(probs.nonzero()[-1]))
        token_ids.append(int(walk[index]))
    return torch.tensor(token_ids)


def specializations() -> list[Specialization]:
    """One a dtype of the logits."""
    found = []
    for dtype in TYPE_NAMES.values():
        signature = {"logits_ptr": f"*{dtype}"}
        signature |= dict.fromkeys(("temperatures_ptr", "top_ks_ptr", "top_ps_ptr", "min_ps_ptr"), "*fp64")
        signature |= dict.fromkeys(("top_ks_ptr", "keys_ptr", "positions_ptr", "token_ids_ptr"), "*i64")
        signature |= {"logits_stride": "i32", "size": "i32", "TILE": "constexpr"}
        label = f"sample {dtype}"
        found.append(Specialization(_sample_kernel, signature, {"TILE": TILE}, LAUNCHED, label))
    return found
