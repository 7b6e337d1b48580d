"""What stands around an 8-bit matrix product: rows to bytes before it, bytes' scales after it. In plain torch here.

    y = x · factors      s = max|y| / 127      q = round(y / s) + 128      y ≈ (q − 128) · s

One scale a row (a token): one for the whole matrix lets the largest token take the precision of all others.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

LEVELS = 127  # steps on each side of zero
ZERO = LEVELS + 1


@dataclass(frozen=True, slots=True)
class QuantizedRows:
    """values [T, N] uint8, ZERO for zero; scales [T] float32."""

    values: Tensor
    scales: Tensor


class Int8Rows(Protocol):
    def quantize(self, x: Tensor, factors: Tensor) -> QuantizedRows:
        """x [T, N] float32, factors [N] float32 → rows of values from 1 to 255."""

    def scale(self, out: Tensor, scales: Tensor, bias: Tensor | None) -> None:
        """out [T, N] = out · scales [T] + bias [N], in place."""


class TorchInt8Rows:
    def quantize(self, x: Tensor, factors: Tensor) -> QuantizedRows:
        y = x * factors
        scales = y.abs().amax(dim=1) / LEVELS
        scales = torch.where(scales > 0, scales, 1.0)
        values = torch.floor(y / scales[:, None] + (ZERO + 0.5))  # halves away from the lowest: as the C version
        return QuantizedRows(values.to(torch.uint8), scales)

    def scale(self, out: Tensor, scales: Tensor, bias: Tensor | None) -> None:
        out *= scales[:, None]
        if bias is not None:
            out += bias
