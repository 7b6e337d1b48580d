"""Put faster modules in the place of a loaded model's own, where they compute the same.

A module that looks right is tried out: in one dry pass of the model, what goes into it and what comes out is noted;
its replacement is given the same and must return the same. Where it does not, or where nothing is recognised, the
model's own module stays, and its parts are tried.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from batchrunner.engine.kv.paged_kv import LayerShape
from batchrunner.engine.model.layers.attention import attention_by
from batchrunner.engine.model.layers.dry_run import DryRun
from batchrunner.engine.model.layers.fused_layer import FusedDecoderLayer, FusedMLP, FusedNorm
from batchrunner.engine.model.layers.linear import MakeLinear, PlainLinear
from batchrunner.kernels.interface import Kernels

# Of the largest value of the output. Two orders of summing differ by a hundredth of it, a different formula by more.
_TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}


@dataclass(slots=True)
class Substitutions:
    """What stands in the place of the model's own modules, for the report.

    quantized: what became of the linear layers, if they are quantised. kept: what looked right and was not.
    """

    kernels: str
    num_layers: int
    num_fused_layers: int = 0
    num_other_modules: int = 0
    quantized: str = ""
    kept: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        text = f"{self.kernels} kernels, {self.num_fused_layers} of {self.num_layers} layers fused"
        text += f", {self.num_other_modules} other modules replaced"
        if self.quantized:
            text += f", {self.quantized}"
        if self.kept:
            text += f"; {len(self.kept)} stay as they are, the first: {self.kept[0]}"
        return text


@dataclass(slots=True)
class _Call:
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any = None


class Substitution:
    """make_linear: how linear layers are multiplied. With PlainLinear those outside fused layers stay as they are."""

    def __init__(self, model: Any, layers: list[LayerShape], kernels: Kernels, make_linear: MakeLinear) -> None:
        self._model = model
        self._layers = layers
        self._kernels = kernels
        self._make_linear = make_linear
        self._calls: dict[nn.Module, _Call] = {}
        self._done = Substitutions(kernels.name, len(layers))

    @torch.inference_mode()
    def run(self) -> Substitutions:
        """Replace what can be replaced, in place."""
        dry_run = DryRun(self._model, self._layers, self._kernels)
        with self._recording():
            dry_run.forward()
        with attention_by(dry_run.attention):
            self._replace_in(self._model, "")
        return self._done

    def _replace_in(self, parent: nn.Module, path: str) -> None:
        for name, module in list(parent.named_children()):
            call = self._calls.pop(module, None)
            replacement = None if call is None else self._tried(module, call, path + name)
            if replacement is None:
                self._replace_in(module, f"{path}{name}.")
                continue
            setattr(parent, name, replacement)
            if isinstance(replacement, FusedDecoderLayer):
                self._done.num_fused_layers += 1
            else:
                self._done.num_other_modules += 1

    def _tried(self, module: nn.Module, call: _Call, path: str) -> nn.Module | None:
        """The module's replacement, if it computes the same."""
        try:
            replacement = self._replacement(module)
            found = replacement(*_copies(call.args), **call.kwargs)
        except Exception as error:  # what looks alike may be anything; it then stays as it is
            self._done.kept.append(f"{path}: {type(error).__name__}: {error}")
            return None
        difference = float((found - call.output).abs().max() / call.output.abs().max().clamp_min(1e-6))
        if difference <= _TOLERANCE[call.output.dtype]:
            return replacement
        self._done.kept.append(f"{path}: differs by {difference:.1e}")
        return None

    def _replacement(self, module: Any) -> nn.Module:
        if FusedDecoderLayer.looks_like(module):
            options = self._layers[module.self_attn.layer_idx].options
            return FusedDecoderLayer(module, len(self._layers), self._kernels, self._make_linear, options)
        if FusedMLP.looks_like(module):
            return FusedMLP(module, self._kernels, self._make_linear)
        if FusedNorm.looks_like(module):
            return FusedNorm(module, self._kernels)
        return self._make_linear(module.weight if type(module) is nn.Linear else module.weight.T, module.bias)

    def _looks_replaceable(self, module: nn.Module) -> bool:
        is_linear = type(module) in (nn.Linear, Conv1D) and self._make_linear is not PlainLinear
        return is_linear or any(kind.looks_like(module) for kind in (FusedDecoderLayer, FusedMLP, FusedNorm))

    @contextmanager
    def _recording(self) -> Iterator[None]:
        def enter(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self._calls[module] = _Call(_copies(args), kwargs)

        def leave(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            self._calls[module].output = output

        modules = [module for module in self._model.modules() if self._looks_replaceable(module)]
        hooks = [module.register_forward_pre_hook(enter, with_kwargs=True) for module in modules]
        hooks += [module.register_forward_hook(leave) for module in modules]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


def _copies(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(arg.clone() if isinstance(arg, Tensor) else arg for arg in args)
