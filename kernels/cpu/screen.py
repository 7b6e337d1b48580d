"""The most probable token of each row, without all logits in float32. screen.c says how."""

import ctypes

import torch
from torch import Tensor

from batchrunner.kernels.cpu.build import load_library


class _Screen(ctypes.Structure):
    """`Screen` in screen.c, field by field."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("approximate", "x", "weight", "x_norms", "x_errors")),
        *((name, ctypes.c_void_p) for name in ("weight_errors", "weight_norms")),
        *((name, ctypes.c_int64) for name in ("num_rows", "num_tokens", "depth")),
        ("token_ids", ctypes.c_void_p),
    )


class Screen:
    """weight [vocabulary, depth] float32, and the same rounded to bfloat16. Raises BuildError."""

    def __init__(self, weight: Tensor, rounded: Tensor) -> None:
        self._library = load_library("screen", {})
        self._weight = weight.contiguous()
        self._weight_norms = rounded.float().norm(dim=1)
        # Sums of n products in float32 lose at most n · 2⁻²⁴ of |x|·|w|, in any order; here are two sums.
        lost = weight.shape[1] * 2.0**-23 * torch.maximum(weight.norm(dim=1), self._weight_norms)
        self._weight_errors = (weight - rounded.float()).norm(dim=1) + lost

    def largest(self, x: Tensor, rounded: Tensor, approximate: Tensor) -> Tensor:
        """The index [S] int64 of the largest product of each row of x [S, depth] float32 with the weight's rows.

        rounded: x in bfloat16. approximate [S, vocabulary] bfloat16: the products of what is rounded.
        """
        x = x.contiguous()
        x_norms, x_errors = x.norm(dim=1), (x - rounded.float()).norm(dim=1)
        token_ids = torch.empty(x.shape[0], dtype=torch.int64)
        work = _Screen(
            approximate=approximate.data_ptr(),
            x=x.data_ptr(),
            weight=self._weight.data_ptr(),
            x_norms=x_norms.data_ptr(),
            x_errors=x_errors.data_ptr(),
            weight_errors=self._weight_errors.data_ptr(),
            weight_norms=self._weight_norms.data_ptr(),
            num_rows=x.shape[0],
            num_tokens=self._weight.shape[0],
            depth=self._weight.shape[1],
            token_ids=token_ids.data_ptr(),
        )
        self._library.largest_products(ctypes.byref(work))
        return token_ids
