"""What stands around an 8-bit matrix product: rows to bytes before it, bytes' scales after it. In plain torch here.

    y = x · factors      s = max|y| / levels      q = round(y / s) + levels + 1      y ≈ (q − levels − 1) · s

One scale a row (a token): one for the whole matrix lets the largest token take the precision of all others.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class QuantizedRows:
    """values [T, N] uint8, levels + 1 for zero; scales [T] float32."""

    values: Tensor
    scales: Tensor


class Int8Rows(Protocol):
    def quantize(self, x: Tensor, factors: Tensor, levels: int) -> QuantizedRows:
        """x [T, N] float32, factors [N] float32 → rows of values from 1 to 2 · levels + 1."""

    def scale(self, out: Tensor, scales: Tensor, bias: Tensor | None) -> None:
        """out [T, N] = out · scales [T] + bias [N], in place."""


class TorchInt8Rows:
    def quantize(self, x: Tensor, factors: Tensor, levels: int) -> QuantizedRows:
        y = x * factors
        scales = y.abs().amax(dim=1) / levels
        scales = torch.where(scales > 0, scales, 1.0)
        values = torch.floor(y / scales[:, None] + (levels + 1.5))  # halves away from the lowest: as the C version
        return QuantizedRows(values.to(torch.uint8), scales)

    def scale(self, out: Tensor, scales: Tensor, bias: Tensor | None) -> None:
        out *= scales[:, None]
        if bias is not None:
            out += bias
