"""Which weights the models of each family have; checked against transformers' own models by a test."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Family:
    """What the layers of a family of models hold. A config may say otherwise of tied, head_dim and the biases."""

    num_norms: int = 2  # a layer's, in vectors of hidden numbers; a bias is one more
    num_final_norms: int = 1
    num_mlp_matrices: int = 3  # gate, up and down
    qkv_bias: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    tied: bool = False  # the output layer is the input embedding
    head_dim: int | None = None  # None: hidden / heads
    has_experts: bool = False
    expert_width_key: str = "intermediate_size"
    has_positions: bool = False
    names: Mapping[str, str] = field(default_factory=dict)  # of keys, where they are not llama's


_GPT2_NAMES = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
}
FAMILIES = {
    "llama": Family(),
    "mistral": Family(),
    "phi3": Family(),
    "granite": Family(),
    "smollm3": Family(tied=True),
    "qwen2": Family(qkv_bias=True),
    "qwen3": Family(qk_norm=True, head_dim=128),
    "gemma": Family(tied=True, head_dim=256),
    "gemma2": Family(num_norms=4, tied=True, head_dim=256),
    "gemma3_text": Family(num_norms=4, qk_norm=True, tied=True, head_dim=256),
    "mixtral": Family(has_experts=True),
    "qwen3_moe": Family(qk_norm=True, has_experts=True, expert_width_key="moe_intermediate_size"),
    "gpt2": Family(
        num_norms=4,
        num_final_norms=2,
        num_mlp_matrices=2,
        attention_bias=True,
        mlp_bias=True,
        tied=True,
        has_positions=True,
        names=_GPT2_NAMES,
    ),
}
