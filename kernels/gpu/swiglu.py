"""The gated activation of a feed-forward layer whose gate and up projections are one matrix multiplication.

    swiglu([gate, up]) = silu(gate) · up        silu(x) = x / (1 + exp(-x))

Computed in float32 and rounded once.
"""

# ruff: noqa: N803 (constants in capitals, as Triton has them)

import torch
import triton
import triton.language as tl
from torch import Tensor

from batchrunner.kernels.gpu.specialization import TYPE_NAMES, Specialization, launch_options

TILE = 1024
LAUNCHED = launch_options(num_warps=4, num_stages=1)


@triton.jit
def _swiglu_kernel(gate_up_ptr, out_ptr, gate_up_stride, size, TILE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    mask = columns < size
    gate_ptr = gate_up_ptr + row * gate_up_stride
    gate = tl.load(gate_ptr + columns, mask, other=0.0).to(tl.float32)
    up = tl.load(gate_ptr + size + columns, mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * size + columns, gate * tl.sigmoid(gate) * up, mask)


def swiglu(gate_up: Tensor) -> Tensor:
    """silu of the first half of each row of gate_up [T, 2·I] times the second half: a new [T, I] of the same dtype.

    The last dim is contiguous.
    """
    num_tokens, size = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty(num_tokens, size, dtype=gate_up.dtype, device=gate_up.device)
    grid = (num_tokens, triton.cdiv(size, TILE))
    _swiglu_kernel[grid](gate_up, out, gate_up.stride(0), size, TILE=TILE, **LAUNCHED)
    return out


def specializations() -> list[Specialization]:
    """One a dtype."""
    found = []
    for dtype in TYPE_NAMES.values():
        signature = {"gate_up_ptr": f"*{dtype}", "out_ptr": f"*{dtype}", "gate_up_stride": "i32", "size": "i32"}
        signature["TILE"] = "constexpr"
        label = f"swiglu {dtype}"
        found.append(Specialization(_swiglu_kernel, signature, {"TILE": TILE}, LAUNCHED, label))
    return found
