"""From what a model returns for a position to its next token."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from batchrunner.engine.kv.paged_kv import LayerShape
from batchrunner.engine.model.layers.dry_run import DryRun
from batchrunner.engine.model.layers.linear import PackedLinear
from batchrunner.engine.request import Request
from batchrunner.engine.text.sampler import draw, sample
from batchrunner.kernels.cpu.build import BuildError
from batchrunner.kernels.cpu.screen import Screen
from batchrunner.kernels.interface import Kernels


class OutputHead(Protocol):
    def sample(self, output: Tensor, requests: Sequence[Request]) -> list[int]:
        """The next token of each request from its row of output [S, width]."""

    def logits(self, output: Tensor) -> Tensor:
        """[S, vocabulary]"""


class LogitsHead:
    """For models that return logits."""

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels

    def sample(self, output: Tensor, requests: Sequence[Request]) -> list[int]:
        return sample(output, requests, self._kernels)

    def logits(self, output: Tensor) -> Tensor:
        return output


class ScreenedHead:
    """For models that return hidden states, their last linear layer taken out. Greedy rows need no float32 logits.

    Measured with 128 rows, a vocabulary of 49,152 and hidden states of 576 on two cores: 20.5 ms, where the product in
    float32 and its arg max take 40; the whole decode step then takes 187.
    """

    def __init__(self, weight: Tensor) -> None:
        rounded = weight.bfloat16()
        self._screen = Screen(weight, rounded)
        self._rounded_linear = PackedLinear(rounded, None)
        self.linear = PackedLinear(weight, None)  # for those that need all logits

    def sample(self, output: Tensor, requests: Sequence[Request]) -> list[int]:
        if not requests:
            return []
        token_ids: list[int] = self.most_probable(output).tolist()
        drawn = [row for row, request in enumerate(requests) if not request.sampling.is_greedy]
        if drawn:
            for row, logits in zip(drawn, self.logits(output[drawn]), strict=True):
                token_ids[row] = draw(logits, requests[row])
        return token_ids

    def most_probable(self, output: Tensor) -> Tensor:
        """The token [S] with the largest logit in each row."""
        rounded = output.bfloat16()
        return self._screen.largest(output, rounded, self._rounded_linear(rounded))

    def logits(self, output: Tensor) -> Tensor:
        logits: Tensor = self.linear(output)
        return logits


@torch.inference_mode()
def take_head(model: Any, layers: Sequence[LayerShape], kernels: Kernels) -> ScreenedHead | None:
    """Take the output layer out of a model in float32 on the CPU; None, and nothing changed, where it does not pay.

    It pays where products in bfloat16 are faster, and works where logits are the layer's output and nothing else.
    """
    linear = model.get_output_embeddings()
    has_bfloat16 = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    if not has_bfloat16 or type(linear) is not nn.Linear or getattr(linear, "bias", None) is not None:
        return None
    outputs: list[Tensor] = []
    hook = linear.register_forward_hook(lambda module, args, output: outputs.append(output.clone()))
    try:
        logits = DryRun(model, layers, kernels).forward()
    finally:
        hook.remove()
    if len(outputs) != 1 or not torch.equal(outputs[0].squeeze(0), logits):
        return None
    try:
        head = ScreenedHead(linear.weight.detach())
    except BuildError:  # the attention kernels have warned of it
        return None
    model.set_output_embeddings(nn.Identity())
    return head
