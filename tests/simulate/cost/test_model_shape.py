"""The sizes of models, against their published numbers of parameters and against transformers."""

import json
from pathlib import Path
from typing import Any

import pytest

from batchrunner.errors import ModelError
from batchrunner.simulate.cost.model_families import FAMILIES
from batchrunner.simulate.cost.model_shape import ModelShape

GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257, "n_positions": 1024}
LLAMA_3_1 = {
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}
MISTRAL = LLAMA_3_1 | {"model_type": "mistral", "vocab_size": 32000}
MIXTRAL = MISTRAL | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}


@pytest.mark.parametrize(
    ("shape", "num_parameters", "num_active", "kv_bytes"),
    [
        (ModelShape.named("smollm2-135m"), 134_515_008, 134_515_008, 2 * 30 * 3 * 64 * 2),
        (ModelShape.named("llama-3.1-8b"), 8_030_261_248, 8_030_261_248 - 128256 * 4096, 131_072),
        (ModelShape.named("llama-2-7b"), 6_738_415_616, 6_738_415_616 - 32000 * 4096, 524_288),
        (ModelShape.named("llama-2-13b"), 13_015_864_320, 13_015_864_320 - 32000 * 5120, 819_200),
        (ModelShape.named("qwen2.5-7b"), 7_615_616_512, 7_615_616_512 - 152064 * 3584, 57_344),
        (ModelShape.from_config(MISTRAL), 7_241_732_096, 7_241_732_096 - 32000 * 4096, 131_072),
        (ModelShape.from_config(GPT2), 124_439_808, 124_439_808 - 1024 * 768, 2 * 12 * 768 * 4),
        # Published as 46.7 B with 12.9 B active; our count leaves the input embedding (0.13 B) out of the latter.
        (ModelShape.from_config(MIXTRAL), 46_702_792_704, 12_748_853_248, 131_072),
    ],
)
def test_sizes(shape: ModelShape, num_parameters: int, num_active: int, kv_bytes: int) -> None:
    assert shape.num_parameters == num_parameters
    assert shape.num_active_parameters == num_active
    assert shape.kv_bytes_per_token == kv_bytes
    assert shape.weight_bytes == num_parameters * shape.dtype_bytes


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_transformers_counts_the_same(family: str, tmp_path: Path) -> None:
    import torch
    import transformers

    sizes: dict[str, Any] = {
        "vocab_size": 160,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    if family != "gpt2":
        sizes |= {"intermediate_size": 96, "num_key_value_heads": 2, "max_position_embeddings": 256}
    if family == "llama":
        sizes |= {"attention_bias": True, "mlp_bias": True}
    if FAMILIES[family].has_experts:
        sizes |= {"num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 40, "head_dim": 32}
    config = transformers.AutoConfig.for_model(family, **sizes)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    config.save_pretrained(tmp_path)
    assert ModelShape.from_config(tmp_path).num_parameters == sum(tensor.numel() for tensor in model.parameters())


def test_dtype_is_the_configs_unless_one_is_asked_for() -> None:
    assert ModelShape.from_config(LLAMA_3_1).dtype_bytes == 2
    assert ModelShape.from_config(LLAMA_3_1, "float32").dtype_bytes == 4
    assert ModelShape.from_config(GPT2).dtype_bytes == 4  # says nothing


def test_the_widest_layer_is_known_and_no_part_of_what_speeds_are_kept_by() -> None:
    assert ModelShape.from_config(MISTRAL).widest == 14336
    assert ModelShape.from_config(GPT2).widest == 4 * 768  # n_inner is null
    assert ModelShape.from_config(GPT2 | {"n_inner": 100}).widest == 100
    assert "widest" not in repr(ModelShape.from_config(MISTRAL))


def test_the_text_part_of_a_model_that_sees_pictures() -> None:
    assert ModelShape.from_config({"model_type": "mistral3", "text_config": MISTRAL}) == ModelShape.from_config(MISTRAL)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": None}, "config.json: hidden_size: missing; add it to the file"),
        ({"vocab_size": "many"}, "config.json: vocab_size: 'many' should be a whole number from 1 up"),
        ({"num_hidden_layers": 0}, "config.json: num_hidden_layers: 0 should be a whole number from 1 up"),
        ({"tie_word_embeddings": 1}, "config.json: tie_word_embeddings: 1 should be true or false"),
        ({"model_type": "mamba"}, "config.json: model_type: 'mamba' is not a family whose sizes are known: llama, "),
        ({"model_type": None}, "config.json: model_type: None is not a family"),
        ({"torch_dtype": "float8_e4m3fn"}, "config.json: torch_dtype: 'float8_e4m3fn' is unknown; choose a dtype"),
        ({"model_type": "gpt2"}, "config.json: n_embd: missing; add it to the file"),
    ],
)
def test_what_cannot_be_read_is_named(change: dict[str, object], message: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_3_1 | change))
    with pytest.raises(ModelError) as caught:
        ModelShape.from_config(tmp_path)
    assert message in str(caught.value)


def test_experts_in_some_layers_only_are_refused() -> None:
    config = MIXTRAL | {"model_type": "qwen3_moe", "moe_intermediate_size": 768, "mlp_only_layers": [0]}
    with pytest.raises(ModelError, match="mlp_only_layers"):
        ModelShape.from_config(config)


def test_files_that_are_no_config(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"missing\.json: cannot be read: No such file"):
        ModelShape.from_config(tmp_path / "missing.json")
    file = tmp_path / "config.json"
    for text, message in (("{", "not readable as JSON"), ("[]", "not a JSON object")):
        file.write_text(text)
        with pytest.raises(ModelError, match=message):
            ModelShape.from_config(file)
    with pytest.raises(ModelError, match=r"'llama-9': unknown.*llama-3\.1-8b"):
        ModelShape.named("llama-9")
