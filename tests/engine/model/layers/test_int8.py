"""8-bit linear layers: rows to bytes and back, products, smoothing, and what becomes of a model."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from batchrunner import Engine, SamplingParams
from batchrunner.engine.model.fingerprint import model_fingerprint
from batchrunner.engine.model.layers import quantize
from batchrunner.engine.model.layers.int8 import Int8Linear, weight_levels
from batchrunner.engine.model.model_files import find_model
from batchrunner.errors import UsageError
from batchrunner.kernels.cpu.int8_rows import CInt8Rows
from batchrunner.kernels.int8_rows import TorchInt8Rows
from batchrunner.spec.engine import EngineConfig
from tests.engine.model.layers.perplexity import predict
from tests.models import SMOLLM2

TORCH = TorchInt8Rows()


@pytest.fixture(scope="module")
def rows_in_c() -> CInt8Rows:
    return CInt8Rows()


@pytest.mark.parametrize(("num_rows", "width"), [(1, 1), (3, 7), (2, 33), (40, 576)])
def test_rows_become_the_same_bytes_in_c(rows_in_c: CInt8Rows, num_rows: int, width: int) -> None:
    torch.manual_seed(width)
    x, factors = torch.randn(num_rows, width) * 5, torch.rand(width) + 0.5
    found, expected = rows_in_c.quantize(x, factors), TORCH.quantize(x, factors)
    torch.testing.assert_close(found.scales, expected.scales)
    assert int((found.values.int() - expected.values.int()).abs().max()) <= 1  # a fused multiply-add rounds once
    assert float((found.values != expected.values).float().mean()) < 0.01


def test_bytes_stand_for_what_they_were_made_of(rows_in_c: CInt8Rows) -> None:
    torch.manual_seed(0)
    x, factors = torch.randn(9, 50), torch.rand(50) + 0.5
    x[4] = 0
    found = rows_in_c.quantize(x, factors)
    assert int(found.values.min()) >= 1 and int(found.values.max()) == 255
    assert (found.values[4] == 128).all() and found.scales[4] == 1
    back = (found.values.float() - 128) * found.scales[:, None]
    assert ((back - x * factors).abs() <= 0.501 * found.scales[:, None]).all()


@pytest.mark.parametrize("has_bias", [True, False])
def test_scales_and_bias_in_c(rows_in_c: CInt8Rows, has_bias: bool) -> None:
    torch.manual_seed(0)
    out, scales, bias = torch.randn(5, 37), torch.rand(5), torch.randn(37) if has_bias else None
    expected = out.clone()
    TORCH.scale(expected, scales, bias)
    rows_in_c.scale(out, scales, bias)
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("num_rows", [1, 3, 300])
def test_a_product_is_close_to_that_of_floats(rows_in_c: CInt8Rows, num_rows: int, has_bias: bool) -> None:
    torch.manual_seed(num_rows)
    own, x = nn.Linear(200, 48, bias=has_bias), torch.randn(num_rows, 200)
    with torch.inference_mode():
        found = Int8Linear(own.weight, own.bias, x.abs().amax(dim=0), rows_in_c)(x)
        error = (found - own(x)).norm() / own(x).norm()
    assert float(error) < (0.015 if weight_levels() == 127 else 0.03)


def test_a_row_does_not_depend_on_its_neighbours(rows_in_c: CInt8Rows) -> None:
    torch.manual_seed(0)
    linear = Int8Linear(torch.randn(40, 64), torch.randn(40), torch.ones(64), rows_in_c)
    x = torch.randn(129, 64)
    together = linear(x)
    assert all(torch.equal(linear(x[row : row + 1])[0], together[row]) for row in range(len(x)))


def test_a_channel_of_large_inputs_does_not_take_the_others_precision(rows_in_c: CInt8Rows) -> None:
    torch.manual_seed(0)
    weight, x = torch.randn(64, 256), torch.randn(32, 256)
    x[:, 7] *= 300
    expected = x @ weight.T

    def error(input_maxima: torch.Tensor) -> float:
        found = Int8Linear(weight, None, input_maxima, rows_in_c)(x)
        return float((found - expected).norm())

    assert error(x.abs().amax(dim=0)) < 0.3 * error(torch.ones(256))


def test_rows_that_are_part_of_wider_ones(rows_in_c: CInt8Rows) -> None:
    torch.manual_seed(0)
    linear = Int8Linear(torch.randn(40, 64), None, torch.ones(64), rows_in_c)
    part = torch.randn(5, 80)[:, 10:74]
    assert torch.equal(linear(part), linear(part.contiguous()))
    assert linear(part[:0]).shape == (0, 40)


SUMS = """
import torch
from batchrunner.engine.model.layers.int8 import Int8Linear, weight_levels
from batchrunner.kernels.int8_rows import TorchInt8Rows
for num_rows, width in ((1, 64), (3, 576), (256, 1536)):
    weight = torch.full((32, width), float(weight_levels()))
    x = torch.full((num_rows, width), 127.0)
    out = Int8Linear(weight, None, torch.full((width,), 127.0), TorchInt8Rows())(x)
    torch.testing.assert_close(out, x @ weight.T)
print(weight_levels())
"""


@pytest.mark.parametrize("instructions", ["DEFAULT", "AVX2", "AVX512_CORE"])
def test_sums_never_overflow(instructions: str) -> None:
    """Without VNNI bytes are added up in 16 bits; weights then have 7 bits."""
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": instructions}
    run = subprocess.run([sys.executable, "-c", SUMS], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == [str(weight_levels()) if instructions == "DEFAULT" else "63"]


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_every_linear_layer_of_a_model_is_replaced(tiny_models: dict[str, Path], family: str) -> None:
    """Fused or not; and answers are the same whatever the batch: the sums are of whole numbers."""
    prompts = [[5, 6, 7, 8 + index] for index in range(9)]
    sampling = SamplingParams(max_tokens=8, ignore_eos=True)
    answers = []
    for max_running in (1, 9):
        with Engine(
            str(tiny_models[family]), kv_tokens=512, quantization="int8", max_running=max_running, prefix_caching=False
        ) as engine:
            assert "9 of 9 linear layers in int8" in engine.kernels  # four in each of two layers, and the head
            answers.append([completion.token_ids for completion in engine.generate(prompts, sampling)])
    assert answers[0] == answers[1]


def test_a_prompt_of_several_steps(chat_model: Path) -> None:
    """Steps that sample nothing ask for no logits."""
    with Engine(chat_model, kv_tokens=512, quantization="int8", max_batch_tokens=16) as engine:
        completion = engine.generate(["a long prompt " * 8], SamplingParams(max_tokens=4, ignore_eos=True))[0]
    assert completion.error is None and len(completion.token_ids) == 4


def test_without_a_compiler_rows_are_quantised_in_torch(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise quantize.BuildError("no compiler")

    monkeypatch.setattr(quantize, "CInt8Rows", fail)
    with Engine(str(tiny_llama), kv_tokens=64, quantization="int8") as engine:
        completion = engine.generate([[5, 6, 7]], SamplingParams(max_tokens=4, ignore_eos=True))[0]
    assert completion.error is None and len(completion.token_ids) == 4


def test_the_number_format_is_part_of_the_models_fingerprint(tiny_llama: Path) -> None:
    files = find_model(str(tiny_llama))
    assert model_fingerprint(files, EngineConfig()) != model_fingerprint(files, EngineConfig(quantization="int8"))


def test_so_is_what_the_scales_were_fitted_to(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, config = find_model(str(tiny_llama)), EngineConfig(quantization="int8")
    before = model_fingerprint(files, config)
    monkeypatch.setattr(quantize, "SMOOTHING", 0.7)
    assert model_fingerprint(files, config) != before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "cuda"}, "int8 is for the CPU, and device is cuda"),
        ({"dtype": "bfloat16"}, "int8 goes with dtype float32, not bfloat16"),
    ],
)
def test_int8_is_for_float32_on_the_cpu(tiny_llama: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Engine(str(tiny_llama), quantization="int8", **options)


@pytest.mark.slow
def test_smollm2_predicts_nearly_as_well() -> None:
    exact, quantized = predict(SMOLLM2, None), predict(SMOLLM2, "int8")
    print(
        f"\nperplexity {exact.perplexity:.2f}, in int8 {quantized.perplexity:.2f} "
        f"({quantized.perplexity / exact.perplexity - 1:+.2%}); equal greedy tokens {exact.share_equal(quantized):.1%}"
    )
    has_eight_bits = weight_levels() == 127
    assert quantized.perplexity < exact.perplexity * (1.02 if has_eight_bits else 1.04)
    assert exact.share_equal(quantized) > (0.9 if has_eight_bits else 0.85)
