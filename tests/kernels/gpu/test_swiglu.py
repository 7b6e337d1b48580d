"""The gated activation on the GPU against plain torch and a direct computation."""

import math

import pytest
import torch

from batchrunner.kernels.gpu.swiglu import swiglu
from batchrunner.kernels.torch_kernels import TorchKernels

PLAIN = TorchKernels(torch.device("cpu"))
# Both compute in float32 and round once (Triton's interpreter cuts off where a device rounds to bfloat16):
# one unit in the last place of the dtype.
RELATIVE = {torch.float32: 1e-5, torch.float16: 2**-10, torch.bfloat16: 2**-7}


@pytest.mark.parametrize("dtype", RELATIVE)
@pytest.mark.parametrize(("num_tokens", "size"), [(0, 8), (1, 1), (3, 100), (2, 1024), (3, 1537)])
def test_swiglu_equals_plain_torch(num_tokens: int, size: int, dtype: torch.dtype) -> None:
    torch.manual_seed(size)
    gate_up = 4 * torch.randn(num_tokens, 2 * size, dtype=dtype)
    out = swiglu(gate_up)
    assert out.shape == (num_tokens, size)
    expected = PLAIN.swiglu(gate_up.float()).to(dtype)
    torch.testing.assert_close(out, expected, rtol=RELATIVE[dtype], atol=1e-6)


def test_swiglu_equals_a_direct_computation() -> None:
    torch.manual_seed(0)
    gate_up = 4 * torch.randn(3, 14)
    expected = [[row[i] / (1 + math.exp(-row[i])) * row[i + 7] for i in range(7)] for row in gate_up.tolist()]
    torch.testing.assert_close(swiglu(gate_up), torch.tensor(expected), rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:overflow encountered in exp")  # of numpy, in Triton's interpreter; 1 / inf is 0
def test_gates_far_from_zero() -> None:
    gate_up = torch.tensor([[-200.0, 200.0, 0.0, 2.0, 3.0, 4.0]])
    assert swiglu(gate_up).tolist() == [[0.0, 600.0, 0.0]]


def test_rows_of_a_wider_tensor() -> None:
    torch.manual_seed(1)
    wide = torch.randn(3, 50)
    torch.testing.assert_close(swiglu(wide[:, 4:24]), PLAIN.swiglu(wide[:, 4:24]))
