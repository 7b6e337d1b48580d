"""Linear layers in 8 bits: weights with a scale for each output, activations with a scale for each token (W8A8)."""

from functools import cache

import torch
from torch import Tensor, nn

from batchrunner.engine.model.layers.linear import PACK_BATCH_SIZE
from batchrunner.errors import DeviceError
from batchrunner.kernels.int8_rows import ZERO, Int8Rows

# Share of an input channel's range that is moved into the weights, 0 to 1. Perplexity of SmolLM2-135M above float32:
# 2.6 % with nothing moved, 1.0 % with 0.5, 0.8 % with 0.65, 3.0 % with 0.8.
SMOOTHING = 0.5


class Int8Linear(nn.Module):
    """x · weightᵀ + bias through oneDNN's product of bytes. Exact in its sums: a row depends on no other.

    weight [out, in] float32. input_maxima [in]: the largest |x| seen of each input channel. Channels with large inputs
    are divided by what their weights are multiplied by, so that both keep their precision: SmoothQuant, arXiv
    2211.10438.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, input_maxima: Tensor, rows: Int8Rows) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self._rows = rows
        self._bias = bias
        smoothing = input_maxima.clamp_min(1e-5) ** SMOOTHING / weight.abs().amax(dim=0).clamp_min(1e-5) ** (
            1 - SMOOTHING
        )
        self._factors = 1 / smoothing
        smooth = weight * smoothing
        self._scales = (smooth.abs().amax(dim=1) / weight_levels()).clamp_min(1e-30)
        quantized = torch.round(smooth / self._scales[:, None]).to(torch.int8)
        self._weight = _packed(quantized)
        self._zeros = torch.zeros(weight.shape[0], dtype=torch.int64)

    def forward(self, x: Tensor) -> Tensor:
        if not x.numel():  # a step that samples nothing asks for no logits
            return x.new_empty(*x.shape[:-1], self.out_features)
        rows = self._rows.quantize(x.reshape(-1, self.in_features).contiguous(), self._factors)
        out = _product(rows.values, self._weight, self._scales, self._zeros)
        self._rows.scale(out, rows.scales, self._bias)
        return out.view(*x.shape[:-1], self.out_features)


@cache
def weight_levels() -> int:
    """How many steps a weight has on each side of zero: 127, or 63 where the chip's sums of bytes overflow.

    Without VNNI two products of bytes are added in 16 bits. That is tried, not asked: with the largest values, in the
    shapes of a step of one token and of many. Weights give up the bit: perplexity of SmolLM2-135M is then 2.6 % above
    float32's, and 4.3 % where activations do.

    Raises DeviceError if torch has no oneDNN.
    """
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        raise DeviceError("engine.quantization: int8 needs a torch with oneDNN, which this one is not; leave it out")
    size, most = 64, 127
    weight = _packed(torch.full((16, size), most, dtype=torch.int8))
    for num_rows in (1, PACK_BATCH_SIZE):
        x = torch.full((num_rows, size), 255, dtype=torch.uint8)
        out = _product(x, weight, torch.ones(16), torch.zeros(16, dtype=torch.int64))
        if not bool((out == size * (255 - ZERO) * most).all()):
            return most // 2
    return most


def _packed(weight: Tensor) -> Tensor:
    packed: Tensor = torch.ops.onednn.qlinear_prepack(weight, [PACK_BATCH_SIZE, weight.shape[1]])
    return packed


def _product(x: Tensor, weight: Tensor, scales: Tensor, zeros: Tensor) -> Tensor:
    """(x − ZERO) · weightᵀ · scales, in float32. Unsigned x: for signed bytes oneDNN has a slow loop only."""
    out: Tensor = torch.ops.onednn.qlinear_pointwise(
        x, 1.0, ZERO, weight, scales, zeros, None, 1.0, 0, torch.float32, "none", [], ""
    )
    return out
