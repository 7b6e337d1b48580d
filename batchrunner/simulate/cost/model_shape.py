"""The sizes of a model that decide what it costs to run, from its config.json in Hugging Face's layout."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from batchrunner.errors import ModelError
from batchrunner.simulate.cost.model_families import FAMILIES, Family

_MODELS = Path(__file__).parent / "models"
_DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A decoder-only transformer in numbers.

    Every layer is taken to attend to the whole context, as the engine does: sliding windows save nothing. Of a model
    that also sees pictures only the text part counts.
    """

    num_layers: int
    hidden: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocabulary: int
    max_position: int
    num_parameters: int
    num_active_parameters: int  # multiplied for one sampled token: the output layer counts, embeddings do not
    num_embedding_parameters: int  # looked up and never multiplied: tokens (unless tied to the output) and positions
    dtype_bytes: int
    widest: int = field(repr=False)  # layer; what was measured of a model is kept by the repr of the other sizes

    @property
    def num_output_parameters(self) -> int:
        return self.vocabulary * self.hidden

    @property
    def kv_bytes_per_token(self) -> int:
        """M = 2 · n_layer · n_kv_head · d_head · sizeof(dtype)"""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * self.dtype_bytes

    @property
    def weight_bytes(self) -> int:
        return self.num_parameters * self.dtype_bytes

    @classmethod
    def named(cls, name: str, dtype: str = "auto") -> Self:
        """A shape that ships with this package; ModelError lists them.

        Sources: config.json of meta-llama/Llama-2-7b-hf, Llama-2-13b-hf and Llama-3.1-8B, Qwen/Qwen2.5-7B and
        HuggingFaceTB/SmolLM2-135M on the Hugging Face hub.
        """
        known = sorted(path.stem for path in _MODELS.glob("*.json"))
        if name not in known:
            raise ModelError(f"model {name!r}: unknown; give a folder with a config.json, or one of {', '.join(known)}")
        return cls.from_config(_MODELS / f"{name}.json", dtype)

    @classmethod
    def from_config(cls, source: Path | str | Mapping[str, Any], dtype: str = "auto") -> Self:
        """From a config.json, the folder it is in, or its values. dtype "auto" is the config's, or else float32.

        Raises ModelError naming the file, the key and the remedy.
        """
        config = _Config.read(source)
        return cls(**_sizes(config, config.family), dtype_bytes=config.dtype_bytes(dtype))

    @classmethod
    def if_known(cls, source: Path, dtype: str) -> "Self | None":
        """None where the config says too little, or something else than what is known."""
        try:
            return cls.from_config(source, dtype)
        except ModelError:
            return None


class _Config:
    """The values of a config.json; what is missing or wrong is a ModelError."""

    def __init__(self, values: Mapping[str, Any], label: str) -> None:
        text = values.get("text_config")
        self._values = {**values, **text} if isinstance(text, Mapping) else values
        self._label = label

    @classmethod
    def read(cls, source: Path | str | Mapping[str, Any]) -> Self:
        if isinstance(source, Mapping):
            return cls(source, "model config")
        path = Path(source)
        path = path / "config.json" if path.is_dir() else path
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ModelError(f"{path}: cannot be read: {error.strerror}; give a folder with a config.json") from error
        except ValueError as error:
            raise ModelError(f"{path}: not readable as JSON: {error}; give a model's config.json") from error
        if not isinstance(values, dict):
            raise ModelError(f"{path}: not a JSON object; give a model's config.json")
        return cls(values, str(path))

    def error(self, key: str, message: str) -> ModelError:
        return ModelError(f"{self._label}: {key}: {message}")

    @property
    def family(self) -> Family:
        name = self._values.get("model_type")
        if name not in FAMILIES:
            raise self.error("model_type", f"{name!r} is not a family whose sizes are known: {', '.join(FAMILIES)}")
        return FAMILIES[name]

    def number(self, key: str, default: int | None = None) -> int:
        key = self.family.names.get(key, key)
        value = self._values.get(key)
        if value is None and default is not None:
            return default
        if value is None:
            raise self.error(key, "missing; add it to the file")
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.error(key, f"{value!r} should be a whole number from 1 up")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self._values.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.error(key, f"{value!r} should be true or false")
        return default if value is None else value

    def dtype_bytes(self, asked: str) -> int:
        key = "dtype" if "dtype" in self._values else "torch_dtype"
        name = asked if asked != "auto" else self._values.get(key) or "float32"
        if name not in _DTYPE_BYTES:
            raise self.error(key, f"{name!r} is unknown; choose a dtype yourself: {', '.join(_DTYPE_BYTES)}")
        return _DTYPE_BYTES[name]

    @property
    def num_experts(self) -> int:
        """Layers without experts among those with them would have to be counted one by one."""
        if self._values.get("mlp_only_layers") or self._values.get("decoder_sparse_step", 1) != 1:
            raise self.error("mlp_only_layers", "models with experts in some layers only are not known")
        return self.number("num_local_experts" if "num_local_experts" in self._values else "num_experts")


def _sizes(config: _Config, family: Family) -> dict[str, int]:
    hidden, num_layers = config.number("hidden_size"), config.number("num_hidden_layers")
    num_heads = config.number("num_attention_heads")
    num_kv_heads = config.number("num_key_value_heads", num_heads)
    head_dim = config.number("head_dim", family.head_dim or hidden // num_heads)
    query, key_value = num_heads * head_dim, num_kv_heads * head_dim
    attention = 2 * hidden * (query + key_value) + (2 * head_dim if family.qk_norm else 0)
    has_bias = config.flag("attention_bias", family.attention_bias)
    attention += (query + 2 * key_value if has_bias or family.qkv_bias else 0) + (hidden if has_bias else 0)
    num_idle = 0  # parameters of the experts that one token does not pass through
    if family.has_experts:
        expert = 3 * hidden * config.number(family.expert_width_key)
        mlp = config.num_experts * (expert + hidden)  # with the router
        num_idle = num_layers * (config.num_experts - config.number("num_experts_per_tok")) * expert
    else:
        width = config.number("intermediate_size", 4 * hidden if family.names else None)  # GPT-2's may be null
        mlp = family.num_mlp_matrices * hidden * width
        mlp += (family.num_mlp_matrices - 1) * width + hidden if config.flag("mlp_bias", family.mlp_bias) else 0
    vocabulary, max_position = config.number("vocab_size"), config.number("max_position_embeddings")
    embedding = 0 if config.flag("tie_word_embeddings", family.tied) else vocabulary * hidden
    embedding += max_position * hidden if family.has_positions else 0
    layer = attention + mlp + family.num_norms * hidden
    multiplied = num_layers * layer + family.num_final_norms * hidden + vocabulary * hidden
    return {
        "num_layers": num_layers,
        "hidden": hidden,
        "num_heads": num_heads,
        "num_kv_heads": num_kv_heads,
        "head_dim": head_dim,
        "vocabulary": vocabulary,
        "max_position": max_position,
        "num_parameters": multiplied + embedding,
        "num_active_parameters": multiplied - num_idle,
        "num_embedding_parameters": embedding,
        "widest": config.number("intermediate_size", 4 * hidden),
    }
