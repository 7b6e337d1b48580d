"""The most probable token without all logits: the same as the arg max of all, and what else a head does."""

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers import Gemma2Config, Gemma2ForCausalLM, LlamaForCausalLM

from batchrunner import Engine, SamplingParams
from batchrunner.engine.model.layers import output_head
from batchrunner.engine.model.layers.output_head import LogitsHead, ScreenedHead
from batchrunner.engine.model.model_files import find_model
from batchrunner.engine.model.model_runner import ModelRunner
from tests.models import TINY_SHAPE

CPU = torch.device("cpu")
NEEDS_BFLOAT16 = pytest.mark.skipif(
    not torch.cpu._is_avx512_supported(), reason="oneDNN multiplies bfloat16 with AVX-512 only"
)


@pytest.fixture
def on_a_chip_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    def choose(has_bfloat16: bool) -> None:
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: has_bfloat16)
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)

    return choose


def is_largest(x: torch.Tensor, weight: torch.Tensor, found: torch.Tensor) -> bool:
    """Up to what float32 makes of products that are equal."""
    products = x.double() @ weight.double().T
    lengths = x.norm(dim=1)[:, None] * weight.norm(dim=1).max()
    return bool((products.gather(1, found[:, None]) >= products.amax(dim=1, keepdim=True) - 1e-6 * lengths).all())


@NEEDS_BFLOAT16
@given(
    st.integers(1, 9), st.integers(1, 300), st.integers(1, 70), st.integers(0, 2**31), st.sampled_from([1e-3, 1, 300])
)
@settings(max_examples=60, deadline=None)
def test_the_largest_product_is_found(rows: int, tokens: int, depth: int, seed: int, size: float) -> None:
    torch.manual_seed(seed)
    x, weight = torch.randn(rows, depth) * size, torch.randn(tokens, depth)
    assert is_largest(x, weight, ScreenedHead(weight).most_probable(x))


@NEEDS_BFLOAT16
def test_products_that_bfloat16_cannot_tell_apart(rows: int = 64) -> None:
    """All tokens are nearly the same direction: every one is a candidate."""
    torch.manual_seed(0)
    weight = torch.randn(1, 96) + 1e-4 * torch.randn(500, 96)
    x = weight[:1] + torch.randn(rows, 96) * 0.1
    found = ScreenedHead(weight).most_probable(x)
    assert is_largest(x, weight, found)
    approximate = (x.bfloat16() @ weight.bfloat16().T).argmax(dim=1)
    assert not is_largest(x, weight, approximate)  # so the test means something


@NEEDS_BFLOAT16
def test_of_equal_tokens_the_first_is_taken() -> None:
    torch.manual_seed(0)
    weight = torch.randn(40, 32)
    weight[[7, 25, 33]] = 5 * weight[7]
    assert ScreenedHead(weight).most_probable(weight[7:8]).tolist() == [7]


@NEEDS_BFLOAT16
def test_what_is_no_number_is_answered_all_the_same() -> None:
    weight = torch.randn(40, 32)
    x = torch.stack([torch.full((32,), float("nan")), weight[3] * 50, torch.full((32,), float("inf"))])
    found = ScreenedHead(weight).most_probable(x)
    assert found[0] == 0 and found[1] == 3 and 0 <= found[2] < 40


@NEEDS_BFLOAT16
@pytest.mark.parametrize("family", ["llama", "qwen2", "mistral", "gpt2"])
def test_models_answer_the_same_with_and_without_it(
    tiny_models: dict[str, Path], family: str, on_a_chip_with: Callable[[bool], None]
) -> None:
    """Greedy and sampled requests side by side."""
    prompts = [[5 + index, 6, 7] for index in range(8)]
    sampling = [SamplingParams(max_tokens=12, temperature=index % 2, seed=index, ignore_eos=True) for index in range(8)]
    answers = []
    for has_bfloat16 in (True, False):
        on_a_chip_with(has_bfloat16)
        with Engine(str(tiny_models[family]), kv_tokens=512) as engine:
            assert isinstance(engine.runner.head, ScreenedHead if has_bfloat16 else LogitsHead)  # type: ignore[attr-defined]
            answers.append([completion.token_ids for completion in engine.generate(prompts, sampling)])
    assert answers[0] == answers[1]


def test_a_head_that_does_more_than_a_product_stays(tmp_path: Path, on_a_chip_with: Callable[[bool], None]) -> None:
    """Gemma 2 caps its logits."""
    torch.manual_seed(0)
    config = Gemma2Config(
        vocab_size=100,
        **TINY_SHAPE,
        head_dim=8,
        max_position_embeddings=64,
        final_logit_softcapping=5.0,
    )
    Gemma2ForCausalLM(config).save_pretrained(tmp_path / "m")
    on_a_chip_with(True)
    runner = ModelRunner(find_model(str(tmp_path / "m")), CPU, "float32")
    assert isinstance(runner.head, LogitsHead)


def test_a_head_whose_logits_are_changed_in_place_stays(
    tiny_llama: Path, on_a_chip_with: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = LlamaForCausalLM.forward

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        output = own(self, *args, **kwargs)
        output.logits[..., 3] = -1e9  # as models do that must not say a token
        return output

    monkeypatch.setattr(LlamaForCausalLM, "forward", forward)
    on_a_chip_with(True)
    assert isinstance(ModelRunner(find_model(str(tiny_llama)), CPU, "float32").head, LogitsHead)


@NEEDS_BFLOAT16
def test_a_closed_engine_keeps_no_head(tiny_llama: Path, on_a_chip_with: Callable[[bool], None]) -> None:
    on_a_chip_with(True)
    engine = Engine(str(tiny_llama), kv_tokens=64)
    head = weakref.ref(engine.runner.head)  # type: ignore[attr-defined]
    engine.close()
    gc.collect()
    assert head() is None


@NEEDS_BFLOAT16
def test_logits_are_those_of_the_layer(tiny_llama: Path) -> None:
    torch.manual_seed(0)
    weight, x = torch.randn(50, 32), torch.randn(3, 32)
    torch.testing.assert_close(ScreenedHead(weight).logits(x), nn.functional.linear(x, weight))


def test_without_a_compiler_logits_are_computed(
    tiny_llama: Path, on_a_chip_with: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*weights: torch.Tensor) -> None:
        raise output_head.BuildError("no compiler")

    on_a_chip_with(True)
    monkeypatch.setattr(output_head, "Screen", fail)
    assert isinstance(ModelRunner(find_model(str(tiny_llama)), CPU, "float32").head, LogitsHead)
