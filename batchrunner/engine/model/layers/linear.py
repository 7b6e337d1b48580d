"""Linear layers as the device multiplies them fastest."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

# oneDNN chooses the weight's layout for a batch size: 142 GFLOP/s on 2 cores at 256 tokens, 409 against 508 tokens/s.
PACK_BATCH_SIZE = 256

MakeLinear = Callable[[Tensor, Tensor | None], nn.Module]


class PlainLinear(nn.Module):
    """x · weightᵀ + bias by torch. weight [out, in]."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.in_features = weight.shape[1]
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight, self.bias)


class PackedLinear(nn.Module):
    """x · weightᵀ + bias by oneDNN, with the weight laid out once for its kernels. float32 or bfloat16, on the CPU."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.in_features = weight.shape[1]
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), PACK_BATCH_SIZE)
        self._bias = bias

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
        return out


def can_pack(device: torch.device, dtype: torch.dtype) -> bool:
    return device.type == "cpu" and dtype == torch.float32 and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]


def merged(linears: Sequence[nn.Module], make: MakeLinear) -> nn.Module:
    """One product in place of several over the same input; the outputs stand one after the other."""
    parts: Sequence[Any] = linears
    weight = torch.cat([part.weight for part in parts])
    bias = None
    if any(part.bias is not None for part in parts):
        zeros = [part.weight.new_zeros(part.weight.shape[0]) for part in parts]
        bias = torch.cat([zero if part.bias is None else part.bias for part, zero in zip(parts, zeros, strict=True)])
    return make(weight, bias)
