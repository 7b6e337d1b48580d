"""RMS norm of rows, alone or fused with the addition to the residual stream before it.

    rms_norm(x) = cast(x / sqrt(mean(x²) + eps)) · weight        add_rms_norm: residual ← residual + x, then its norm

Statistics are float32. The cast to the dtype of x before the weight is the one transformers' LlamaRMSNorm makes.
One program holds one row in registers, so that it is read once.
"""

# ruff: noqa: N803 (constants in capitals, as Triton has them)

import torch
import triton
import triton.language as tl
from torch import Tensor

from batchrunner.kernels.gpu.specialization import TYPE_NAMES, Specialization, launch_options

# By tile: a row goes into the smallest one that holds it. The small ones serve norms over a head.
LAUNCHED = {
    tile: launch_options(num_warps, num_stages=1)
    for tile, num_warps in {128: 1, 256: 1, 1024: 4, 2048: 4, 4096: 8, 8192: 8, 16384: 16}.items()
}


@triton.jit
def _normalise(x, weight, size, eps):
    x32 = x.to(tl.float32)
    normalised = x32 * tl.rsqrt(tl.sum(x32 * x32) / size + eps)
    return normalised.to(x.dtype).to(tl.float32) * weight.to(tl.float32)


@triton.jit
def _rms_norm_kernel(x_ptr, weight_ptr, out_ptr, x_stride, size, eps, TILE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, TILE)
    mask = columns < size
    x = tl.load(x_ptr + row * x_stride + columns, mask, other=0.0)
    weight = tl.load(weight_ptr + columns, mask, other=0.0)
    tl.store(out_ptr + row * size + columns, _normalise(x, weight, size, eps), mask)


@triton.jit
def _add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, x_stride, residual_stride, size, eps, TILE: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, TILE)
    mask = columns < size
    x = tl.load(x_ptr + row * x_stride + columns, mask, other=0.0)
    residual = tl.load(residual_ptr + row * residual_stride + columns, mask, other=0.0)
    # The norm is that of the sum as stored, in the model's dtype.
    total = (x.to(tl.float32) + residual.to(tl.float32)).to(x.dtype)
    tl.store(residual_ptr + row * residual_stride + columns, total, mask)
    weight = tl.load(weight_ptr + columns, mask, other=0.0)
    tl.store(out_ptr + row * size + columns, _normalise(total, weight, size, eps), mask)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMS norm of each row of x [T, N], its last dim contiguous; weight [N] of x's dtype. Returns a new [T, N].

    Raises ValueError where N exceeds the largest tile (16,384) or the dtypes differ.
    """
    tile = _tile(x, weight)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _rms_norm_kernel[(x.shape[0],)](x, weight, out, x.stride(0), x.shape[1], eps, TILE=tile, **LAUNCHED[tile])
    return out


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Add x [T, N] to residual [T, N] in place and return the RMS norm of the sum, a new [T, N].

    Dtypes, layout and errors as in rms_norm.
    """
    tile = _tile(x, weight, residual)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _add_rms_norm_kernel[(x.shape[0],)](
        x,
        residual,
        weight,
        out,
        x.stride(0),
        residual.stride(0),
        x.shape[1],
        eps,
        TILE=tile,
        **LAUNCHED[tile],
    )
    return out


def specializations() -> list[Specialization]:
    """Each kernel in each tile and dtype."""
    found = []
    for dtype in TYPE_NAMES.values():
        for tile, launched in LAUNCHED.items():
            for kernel, name in ((_rms_norm_kernel, "rms_norm"), (_add_rms_norm_kernel, "add_rms_norm")):
                signature = {arg: f"*{dtype}" if arg.endswith("_ptr") else "i32" for arg in kernel.arg_names}
                signature |= {"eps": "fp32", "TILE": "constexpr"}
                label = f"{name} {dtype} {tile}"
                found.append(Specialization(kernel, signature, {"TILE": tile}, launched, label))
    return found


def _tile(x: Tensor, *others: Tensor) -> int:
    if any(other.dtype != x.dtype for other in others):
        raise ValueError(f"rms_norm takes tensors of one dtype, got {[x.dtype, *(other.dtype for other in others)]}")
    size = x.shape[1]
    fitting = [tile for tile in LAUNCHED if tile >= size]
    if not fitting:
        raise ValueError(f"rms_norm takes rows of up to {max(LAUNCHED)} values, got {size}")
    return min(fitting)
