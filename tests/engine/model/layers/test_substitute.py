"""Faster modules in the place of a model's own: what is recognised, what is tried out, what stays."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, Qwen3Config
from transformers.models.llama.modeling_llama import LlamaForCausalLM, LlamaMLP

from batchrunner import Engine, SamplingParams
from batchrunner.engine.model.layers import attention
from batchrunner.engine.model.layers.fused_layer import FusedDecoderLayer, FusedMLP, FusedNorm
from batchrunner.engine.model.layers.linear import PackedLinear, PlainLinear
from batchrunner.engine.model.model_files import find_model
from batchrunner.engine.model.model_runner import ModelRunner, choose_kernels
from tests.models import TINY_SHAPE

CPU = torch.device("cpu")


def runner(folder: Path) -> ModelRunner:
    return ModelRunner(find_model(str(folder)), CPU, "float32")


def kinds(model: Any) -> set[type]:
    return {type(module) for module in model.modules()}


@pytest.mark.parametrize("family", ["llama", "qwen2", "mistral"])
def test_layers_of_the_llama_kind_are_fused_whole(tiny_models: dict[str, Path], family: str) -> None:
    loaded = runner(tiny_models[family])
    done = loaded.substitutions
    assert (done.num_layers, done.num_fused_layers, done.num_other_modules, done.kept) == (2, 2, 2, [])
    assert kinds(loaded.model) >= {FusedDecoderLayer, FusedNorm, PackedLinear}
    assert nn.Linear not in kinds(loaded.model)


def test_the_last_layer_computes_only_what_is_asked_for(tiny_llama: Path) -> None:
    """Nine tokens need keys and values in it; the logits are those of the last one alone."""
    with Engine(str(tiny_llama), kv_tokens=64) as engine:
        assert isinstance(engine.runner, ModelRunner)
        layers = engine.runner.model.model.layers
        rows: list[tuple[int, int]] = []
        for index, layer in enumerate(layers):
            layer.mlp.register_forward_pre_hook(lambda module, args, index=index: rows.append((index, len(args[0]))))
        engine.generate([[3, 4, 5, 6, 7, 8, 9, 10, 11]], SamplingParams(max_tokens=2, ignore_eos=True))
    assert rows == [(0, 9), (1, 1), (0, 1), (1, 1)]


def test_gpt2_keeps_its_layers_and_gets_packed_products(tiny_models: dict[str, Path]) -> None:
    done = runner(tiny_models["gpt2"]).substitutions
    assert (done.num_fused_layers, done.num_other_modules, done.kept) == (0, 2 * 4 + 1, [])


def save(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    return folder


def test_a_layer_with_more_parts_is_replaced_part_by_part(tmp_path: Path) -> None:
    """Qwen3 normalises queries and keys, which the fused layer does not."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=100,
        **TINY_SHAPE,
        head_dim=8,
        max_position_embeddings=64,
    )
    done = runner(save(AutoModelForCausalLM.from_config(config), tmp_path / "m")).substitutions
    # In each layer four norms (two of them of queries and keys), q, k, v, o and the MLP; then the last norm, the head.
    assert (done.num_fused_layers, done.num_other_modules, done.kept) == (0, 2 * (4 + 4 + 1) + 2, [])


def test_what_looks_alike_and_computes_something_else_stays(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(self: Any, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.down_proj(torch.relu(self.gate_proj(x)) * self.up_proj(x))
        return out

    monkeypatch.setattr(LlamaMLP, "forward", other)
    loaded = runner(tiny_llama)
    done = loaded.substitutions
    assert done.num_fused_layers == 0
    assert FusedMLP not in kinds(loaded.model) and LlamaMLP in kinds(loaded.model)
    assert [line.split(":")[0] for line in done.kept] == [
        "model.layers.0",
        "model.layers.0.mlp",
        "model.layers.1",
        "model.layers.1.mlp",
    ]
    assert all("differs by" in line for line in done.kept)


def test_a_replacement_that_fails_is_no_replacement(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Any, x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("not on this machine")

    monkeypatch.setattr(FusedNorm, "forward", fail)
    done = runner(tiny_llama).substitutions
    assert done.num_fused_layers == 0
    assert "model.norm: RuntimeError: not on this machine" in done.kept


def test_each_device_has_its_kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert choose_kernels(torch.device("cuda"), torch.float16, []).name == "Triton"
    assert choose_kernels(CPU, torch.float32, []).name == "C"
    assert choose_kernels(CPU, torch.bfloat16, []).name == "torch"
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.warns(UserWarning, match="slow attention in plain torch: no C compiler"):
        assert choose_kernels(CPU, torch.float32, []).name == "torch"


def test_the_weights_of_replaced_modules_are_let_go(tiny_llama: Path) -> None:
    attention.register()
    own = sum(p.numel() for p in LlamaForCausalLM.from_pretrained(tiny_llama).parameters())
    left = sum(p.numel() for p in runner(tiny_llama).model.parameters())
    assert left < own / 2  # the embeddings


@pytest.mark.parametrize("kind", [PlainLinear, PackedLinear])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("rows", [1, 3, 300])
def test_linear_layers_equal_torch(kind: Any, has_bias: bool, rows: int) -> None:
    torch.manual_seed(rows)
    own = nn.Linear(33, 17, bias=has_bias)
    x = torch.randn(rows, 33)
    with torch.inference_mode():
        torch.testing.assert_close(kind(own.weight, own.bias)(x), own(x), atol=1e-5, rtol=1e-5)
