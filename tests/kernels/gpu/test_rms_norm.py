"""RMS norm on the GPU against plain torch, transformers and a direct computation."""

import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from batchrunner.kernels.gpu.rms_norm import add_rms_norm, rms_norm
from batchrunner.kernels.torch_kernels import TorchKernels

PLAIN = TorchKernels(torch.device("cpu"))
EPS = 1e-5
# Both round alike but for the order of a float32 sum: one unit in the last place of the dtype. Triton's
# interpreter cuts a float32 off where a device rounds it to bfloat16: one unit more for each of the two roundings.
RELATIVE = {torch.float32: 1e-5, torch.float16: 2**-10, torch.bfloat16: 3 * 2**-7}
SUM_RELATIVE = {torch.float32: 0.0, torch.float16: 0.0, torch.bfloat16: 2**-7}
SHAPES = [(1, 1), (3, 80), (5, 129), (2, 1025), (1, 16384)]


@pytest.mark.parametrize("dtype", RELATIVE)
@pytest.mark.parametrize(("num_tokens", "size"), SHAPES)
def test_rms_norm_equals_plain_torch(num_tokens: int, size: int, dtype: torch.dtype) -> None:
    torch.manual_seed(size)
    x, weight = 5 * torch.randn(num_tokens, size, dtype=dtype), torch.randn(size, dtype=dtype)
    expected = PLAIN.rms_norm(x, weight, EPS)
    torch.testing.assert_close(rms_norm(x, weight, EPS), expected, rtol=RELATIVE[dtype], atol=1e-6)


@pytest.mark.parametrize("dtype", RELATIVE)
@pytest.mark.parametrize(("num_tokens", "size"), SHAPES)
def test_add_rms_norm_equals_plain_torch_and_adds_in_place(num_tokens: int, size: int, dtype: torch.dtype) -> None:
    torch.manual_seed(size)
    x, residual = torch.randn(2, num_tokens, size, dtype=dtype)
    weight = torch.randn(size, dtype=dtype)
    expected_residual = residual.clone()
    expected = PLAIN.add_rms_norm(x, expected_residual, weight, EPS)
    out = add_rms_norm(x, residual, weight, EPS)
    torch.testing.assert_close(residual, expected_residual, rtol=SUM_RELATIVE[dtype], atol=0.0)
    torch.testing.assert_close(out, PLAIN.rms_norm(residual, weight, EPS), rtol=RELATIVE[dtype], atol=1e-6)
    torch.testing.assert_close(out, expected, rtol=RELATIVE[dtype] + SUM_RELATIVE[dtype], atol=1e-6)


@pytest.mark.parametrize("dtype", RELATIVE)
def test_plain_torch_is_transformers(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, norm = torch.randn(7, 96, dtype=dtype), LlamaRMSNorm(96, EPS).to(dtype)
    torch.nn.init.normal_(norm.weight)
    assert torch.equal(PLAIN.rms_norm(x, norm.weight.detach(), EPS), norm(x).detach())


def test_rms_norm_equals_a_direct_computation_in_float64() -> None:
    torch.manual_seed(1)
    x, weight = torch.randn(4, 33), torch.randn(33)
    for row, out in zip(x.double(), rms_norm(x, weight, EPS).double(), strict=True):
        mean_square = sum(float(value) ** 2 for value in row) / 33
        torch.testing.assert_close(out, row / (mean_square + EPS) ** 0.5 * weight.double(), rtol=1e-5, atol=1e-6)


def test_rows_of_a_wider_tensor() -> None:
    torch.manual_seed(2)
    wide, weight = torch.randn(3, 100), torch.randn(40)
    residual = wide[:, 60:]
    untouched = wide[:, :60].clone()
    expected = PLAIN.rms_norm(wide[:, 10:50] + residual, weight, EPS)
    torch.testing.assert_close(add_rms_norm(wide[:, 10:50].clone(), residual, weight, EPS), expected)
    assert torch.equal(wide[:, :60], untouched)
    torch.testing.assert_close(rms_norm(wide[:, 5:45], weight, EPS), PLAIN.rms_norm(wide[:, 5:45], weight, EPS))


def test_no_rows() -> None:
    assert rms_norm(torch.empty(0, 8), torch.ones(8), EPS).shape == (0, 8)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="up to 16384 values, got 16385"):
        rms_norm(torch.empty(1, 16385), torch.empty(16385), EPS)
    with pytest.raises(ValueError, match="one dtype"):
        add_rms_norm(torch.empty(1, 8), torch.empty(1, 8, dtype=torch.float16), torch.empty(8), EPS)
