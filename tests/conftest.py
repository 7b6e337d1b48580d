"""What pytest gives to every test: its environment, and small models made once."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.models import TINY_FAMILIES, TINY_SHAPE, build_tiny_model, build_tiny_tokenizer

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRITON_INTERPRET"] = "1"  # kernels for a GPU run in numpy here


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


@pytest.fixture(scope="session")
def chat_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny llama with a tokenizer and a chat template: everything a job needs, in milliseconds."""
    import torch
    import transformers

    folder = tmp_path_factory.mktemp("chat") / "model"
    config = transformers.LlamaConfig(
        vocab_size=259,
        **TINY_SHAPE,
        max_position_embeddings=512,
        initializer_range=0.3,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config)
    model.generation_config.eos_token_id = 2
    model.save_pretrained(folder)
    build_tiny_tokenizer(folder)
    return folder
