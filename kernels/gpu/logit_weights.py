"""A logit as sampling uses it: its weight, relative to the largest, and its place in the order of all logits.

    weight = ⌊2^42 · exp((logit - max) / temperature)⌋        place = the bits of the float32 as an ordered integer

Sums of weights are exact in any order. A place has the digits that a radix search walks through.
"""

import math

import triton
import triton.language as tl

# The weight of the most probable token: the sum of a whole vocabulary of them fits in 63 bits.
ONE = tl.constexpr(1 << 42)
LOG2_E = tl.constexpr(math.log2(math.e))
# (logit - max) · scale stays finite whatever the logits and the temperature; at this scale any two float32 logits of
# magnitude 1 and more lie far apart.
MAX_LOGIT = tl.constexpr(1e30)
MAX_SCALE = tl.constexpr(1e8)


@triton.jit
def load_logits(row_ptr, columns, size):
    """Logits of a row, in float32, and their places: unsigned integers of the same order.

    Infinities are made finite and -0 is made 0; -MAX_LOGIT stands beyond the row and for NaN.
    """
    logits = tl.load(row_ptr + columns, columns < size, other=float("-inf")).to(tl.float32)
    logits = tl.where(logits == logits, logits, -MAX_LOGIT)
    logits = tl.minimum(tl.maximum(logits, -MAX_LOGIT), MAX_LOGIT)
    logits = tl.where(logits == 0.0, 0.0, logits)
    bits = logits.to(tl.int32, bitcast=True)
    return logits, (bits ^ ((bits >> 31) | -0x80000000)).to(tl.uint32, bitcast=True)


@triton.jit
def weights_of(logits, largest, scale):
    """2^((logit - largest) · scale) in fixed point, 0 for -MAX_LOGIT; at scale 0 every other logit weighs ONE."""
    weights = tl.where(logits > -MAX_LOGIT, tl.exp2((logits - largest) * scale), 0.0)
    return (weights * ONE).to(tl.int64)


@triton.jit
def weight_at(place, largest, scale):
    """The weight of a logit at a place, at least 1: it is divided by."""
    bits = place.to(tl.int32, bitcast=True)
    logit = (bits ^ (~(bits >> 31) | -0x80000000)).to(tl.float32, bitcast=True)
    return tl.maximum(weights_of(logit, largest, scale), 1)
