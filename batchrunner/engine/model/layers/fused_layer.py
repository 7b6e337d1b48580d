"""Modules that compute what a model's own do, in fewer passes; substitute.py puts them in place.

A decoder layer of the llama kind becomes four matrix products with one kernel between each two. `looks_like` says
whether a module has the parts; whether it computes the same is tried out.
"""

from typing import Any

from torch import Tensor, nn

from batchrunner.engine.model.layers.attention import current_attention
from batchrunner.engine.model.layers.linear import MakeLinear, merged
from batchrunner.kernels.attention_work import AttentionOptions
from batchrunner.kernels.interface import Kernels


class FusedNorm(nn.Module):
    """RMSNorm as one kernel, over the last dimension."""

    def __init__(self, norm: Any, kernels: Kernels) -> None:
        super().__init__()
        self._kernels = kernels
        self.weight: Tensor = norm.weight
        self.eps: float = norm.variance_epsilon

    @staticmethod
    def looks_like(module: nn.Module) -> bool:
        return hasattr(module, "variance_epsilon") and [name for name, _ in module.named_parameters()] == ["weight"]

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        return self._kernels.rms_norm(rows.contiguous(), self.weight, self.eps).view(x.shape)


class FusedMLP(nn.Module):
    """Gated MLP: gate and up as one product, SwiGLU as one kernel."""

    def __init__(self, mlp: Any, kernels: Kernels, make_linear: MakeLinear) -> None:
        super().__init__()
        self._kernels = kernels
        self.gate_up_proj = merged([mlp.gate_proj, mlp.up_proj], make_linear)
        self.down_proj = merged([mlp.down_proj], make_linear)

    @staticmethod
    def looks_like(module: nn.Module) -> bool:
        return _has_parts(module, {"gate_proj", "up_proj", "down_proj", "act_fn"})

    def forward(self, x: Tensor) -> Tensor:
        gate_up = self.gate_up_proj(x.view(-1, x.shape[-1]))
        out: Tensor = self.down_proj(self._kernels.swiglu(gate_up))
        return out.view(x.shape)


class FusedDecoderLayer(nn.Module):
    """Norm, attention, norm, MLP, with a residual around each two. Changes its input in place.

    In the last layer a token whose logits nobody asks for is done once its keys and values are written.
    """

    def __init__(
        self, layer: Any, num_layers: int, kernels: Kernels, make_linear: MakeLinear, options: AttentionOptions
    ) -> None:
        super().__init__()
        attention = layer.self_attn
        self._is_last: bool = attention.layer_idx == num_layers - 1
        self._kernels = kernels
        self._options = options
        self._layer_idx: int = attention.layer_idx
        self._num_heads: int = attention.q_proj.out_features // attention.head_dim
        self.norm_1 = FusedNorm(layer.input_layernorm, kernels)
        self.norm_2 = FusedNorm(layer.post_attention_layernorm, kernels)
        self.qkv_proj = merged([attention.q_proj, attention.k_proj, attention.v_proj], make_linear)
        self.o_proj = merged([attention.o_proj], make_linear)
        self.mlp = FusedMLP(layer.mlp, kernels, make_linear)

    @staticmethod
    def looks_like(module: nn.Module) -> bool:
        return (
            _has_parts(module, {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"})
            and _has_parts(module.get_submodule("self_attn"), {"q_proj", "k_proj", "v_proj", "o_proj"})
            and FusedMLP.looks_like(module.get_submodule("mlp"))
            and FusedNorm.looks_like(module.get_submodule("input_layernorm"))
            and FusedNorm.looks_like(module.get_submodule("post_attention_layernorm"))
        )

    def forward(self, hidden_states: Tensor, *, position_embeddings: tuple[Tensor, Tensor], **others: Any) -> Tensor:
        """hidden_states [1, T, hidden] → the same."""
        x, step = hidden_states[0], current_attention()
        cos, sin = position_embeddings
        qkv = self.qkv_proj(self.norm_1(x))
        query = step.rotate_and_write_kv(self._layer_idx, qkv, cos[0], sin[0], self._num_heads)
        attended = step.attend_written(self._layer_idx, query, self._options).flatten(1)
        if not self._is_last or step.logit_rows is None:
            self._add_rest(attended, x)
        elif len(step.logit_rows):
            rest = x[step.logit_rows]
            self._add_rest(attended[step.logit_rows], rest)
            x[step.logit_rows] = rest
        return hidden_states

    def _add_rest(self, attended: Tensor, x: Tensor) -> None:
        """What follows attention, row by row: x becomes the layer's output."""
        x += self.mlp(self._kernels.add_rms_norm(self.o_proj(attended), x, self.norm_2.weight, self.norm_2.eps))


def _has_parts(module: nn.Module, names: set[str]) -> bool:
    """Whether these are the children, the linear layers among them are plain, and there is no parameter beside them."""
    children = dict(module.named_children())
    linears = [child for name, child in children.items() if name.endswith("_proj")]
    own = list(module.named_parameters(recurse=False))
    return children.keys() == names and all(type(linear) is nn.Linear for linear in linears) and not own
