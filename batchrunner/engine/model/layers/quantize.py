"""Put 8-bit layers in the place of a loaded model's linear ones, fitted to what flows through them."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from batchrunner.engine.kv.paged_kv import LayerShape
from batchrunner.engine.model.layers.dry_run import DryRun, DryWork
from batchrunner.engine.model.layers.int8 import SMOOTHING, Int8Linear, weight_levels
from batchrunner.engine.model.layers.linear import PlainLinear
from batchrunner.engine.text.tokenizer import Tokenizer
from batchrunner.kernels.cpu.build import BuildError
from batchrunner.kernels.cpu.int8_rows import CInt8Rows
from batchrunner.kernels.int8_rows import Int8Rows, TorchInt8Rows
from batchrunner.kernels.interface import Kernels

# Prose, code, data and dialogue: what activations are like is learnt from it, once at every start.
_TEXT = Path(__file__).with_name("calibration.txt")
_MAX_TOKENS = 512


@torch.inference_mode()
def quantize(
    model: Any, tokenizer: Tokenizer | None, context_len: int, layers: Sequence[LayerShape], kernels: Kernels
) -> str:
    """Quantise the linear layers that the text reaches, in place; returns what was done, for the report."""
    vocabulary = model.get_input_embeddings().num_embeddings
    token_ids = _calibration_token_ids(vocabulary, tokenizer)[:context_len]
    maxima: dict[nn.Module, Tensor] = {}

    def enter(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        if args[0].numel():
            found = args[0].abs().flatten(0, -2).amax(dim=0)
            maxima[module] = torch.maximum(found, maxima.get(module, found))

    linears = [module for module in model.modules() if type(module) in (nn.Linear, Conv1D, PlainLinear)]
    hooks = [module.register_forward_pre_hook(enter) for module in linears]
    try:
        DryRun(model, layers, kernels, DryWork.one_prompt(len(token_ids))).forward(token_ids)
    finally:
        for hook in hooks:
            hook.remove()
    num_replaced = _replace(model, maxima, _int8_rows())
    num_bits = (2 * weight_levels() + 1).bit_length()
    return f"{num_replaced} of {len(linears)} linear layers in int8 (weights of {num_bits} bits)"


def recipe() -> str:
    """A digest of all that decides the weights, beside the model. Raises DeviceError."""
    parts = (_TEXT.read_text(encoding="utf-8"), _MAX_TOKENS, SMOOTHING, "weights", weight_levels())
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _replace(parent: Any, maxima: dict[nn.Module, Tensor], rows: Int8Rows) -> int:
    num_replaced = 0
    for name, module in list(parent.named_children()):
        if module in maxima:
            weight = module.weight.T if type(module) is Conv1D else module.weight
            setattr(parent, name, Int8Linear(weight.contiguous(), module.bias, maxima.pop(module), rows))
            num_replaced += 1
        else:
            num_replaced += _replace(module, maxima, rows)
    return num_replaced


def _calibration_token_ids(vocabulary: int, tokenizer: Tokenizer | None) -> list[int]:
    if tokenizer is not None:
        found = tokenizer.encode_prompt(_TEXT.read_text(encoding="utf-8"))
        return [token_id for token_id in found if token_id < vocabulary][:_MAX_TOKENS]
    generator = torch.Generator().manual_seed(0)
    token_ids: list[int] = torch.randint(vocabulary, (_MAX_TOKENS,), generator=generator).tolist()
    return token_ids


def _int8_rows() -> Int8Rows:
    try:
        return CInt8Rows()
    except BuildError:  # the attention kernels have warned of it
        return TorchInt8Rows()
