"""Rows of floats to rows of bytes and back, in C."""

import ctypes

import torch
from torch import Tensor

from batchrunner.kernels.cpu.build import load_library
from batchrunner.kernels.int8_rows import QuantizedRows


class CInt8Rows:
    """Raises BuildError."""

    def __init__(self) -> None:
        self._library = load_library("int8_rows", {})

    def quantize(self, x: Tensor, factors: Tensor) -> QuantizedRows:
        values = torch.empty(x.shape, dtype=torch.uint8)
        scales = torch.empty(x.shape[0])
        self._library.quantize_rows(
            *(ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, factors, values, scales)),
            *map(ctypes.c_int64, x.shape),
        )
        return QuantizedRows(values, scales)

    def scale(self, out: Tensor, scales: Tensor, bias: Tensor | None) -> None:
        pointers = [None if tensor is None else tensor.data_ptr() for tensor in (out, scales, bias)]
        self._library.scale_rows(*map(ctypes.c_void_p, pointers), *map(ctypes.c_int64, out.shape))
