"""The C kernels between the matrix products, against plain torch; attention is in test_paged_attention.py."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from batchrunner.kernels.cpu.build import BuildError, load_library
from batchrunner.kernels.cpu.cpu_kernels import CpuKernels
from batchrunner.kernels.torch_kernels import TorchKernels

TORCH = TorchKernels(torch.device("cpu"))


@pytest.fixture(scope="module")
def cpu() -> CpuKernels:
    return CpuKernels([(16, 16)])


@pytest.mark.parametrize(("rows", "width"), [(1, 1), (3, 7), (5, 64), (2, 577), (40, 576)])
def test_rms_norm(cpu: CpuKernels, rows: int, width: int) -> None:
    torch.manual_seed(width)
    x, weight = torch.randn(rows, width) * 3, torch.randn(width)
    torch.testing.assert_close(cpu.rms_norm(x, weight, 1e-5), TORCH.rms_norm(x, weight, 1e-5))


@pytest.mark.parametrize(("rows", "width"), [(1, 1), (3, 7), (40, 576)])
def test_add_rms_norm_adds_in_place(cpu: CpuKernels, rows: int, width: int) -> None:
    torch.manual_seed(width)
    x, residual, weight = torch.randn(rows, width), torch.randn(rows, width), torch.randn(width)
    expected_residual = residual.clone()
    expected = TORCH.add_rms_norm(x, expected_residual, weight, 1e-5)
    torch.testing.assert_close(cpu.add_rms_norm(x, residual, weight, 1e-5), expected)
    torch.testing.assert_close(residual, expected_residual)


@pytest.mark.parametrize(("rows", "width"), [(1, 1), (3, 7), (2, 33), (20, 1536)])
def test_swiglu(cpu: CpuKernels, rows: int, width: int) -> None:
    torch.manual_seed(width)
    gate_up = torch.randn(rows, 2 * width) * 20
    torch.testing.assert_close(cpu.swiglu(gate_up), TORCH.swiglu(gate_up), atol=1e-6, rtol=3e-6)


def test_swiglu_of_gates_of_any_size(cpu: CpuKernels) -> None:
    gate = torch.linspace(-400, 400, 8001)  # below -88 the exponential overflows
    gate_up = torch.cat([gate, torch.ones_like(gate)])[None]
    torch.testing.assert_close(cpu.swiglu(gate_up), TORCH.swiglu(gate_up), atol=1e-6, rtol=3e-6)


@pytest.mark.parametrize(("heads", "kv_heads", "dim", "rotary_dim"), [(4, 2, 16, 16), (3, 3, 10, 4), (9, 3, 64, 64)])
@pytest.mark.parametrize("block_size", [1, 5, 16])
def test_rotate_and_write_kv(
    cpu: CpuKernels, heads: int, kv_heads: int, dim: int, rotary_dim: int, block_size: int
) -> None:
    torch.manual_seed(dim)
    rows, num_blocks = 7, 20
    qkv = torch.randn(rows, (heads + 2 * kv_heads) * dim)
    cos, sin = torch.randn(2, rows, rotary_dim)
    slots = torch.randperm(num_blocks * block_size)[:rows]
    caches = torch.zeros(4, num_blocks, kv_heads, block_size, dim)
    expected = TORCH.rotate_and_write_kv(qkv.clone(), cos, sin, caches[0], caches[1], slots, heads)
    query = cpu.rotate_and_write_kv(qkv, cos, sin, caches[2], caches[3], slots, heads)
    torch.testing.assert_close(query, expected)
    torch.testing.assert_close(caches[2:], caches[:2])


def test_without_a_compiler_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match="install one"):
        load_library("elementwise", {})


def test_a_compiler_that_fails_is_quoted_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho no such chip >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    monkeypatch.setenv("BATCHRUNNER_CACHE", str(tmp_path / "cache"))
    with pytest.raises(BuildError, match="no such chip"):
        load_library("elementwise", {})
    assert list((tmp_path / "cache" / "kernels").iterdir()) == []


def test_a_library_is_compiled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BATCHRUNNER_CACHE", str(tmp_path))
    load_library("elementwise", {})
    (built,) = (tmp_path / "kernels").iterdir()
    written = built.stat().st_mtime_ns
    load_library("elementwise", {})
    assert [path.stat().st_mtime_ns for path in (tmp_path / "kernels").iterdir()] == [written]
    load_library("elementwise", {"OTHER": 1})
    assert len(list((tmp_path / "kernels").iterdir())) == 2


def test_the_kernels_use_the_openmp_that_torch_has_loaded() -> None:
    """A second runtime with threads of its own made everything up to twice slower."""
    code = (
        "import torch\n"
        "from pathlib import Path\n"
        "from batchrunner.kernels.cpu.cpu_kernels import CpuKernels\n"
        "CpuKernels([(16, 16)])\n"
        "maps = Path('/proc/self/maps').read_text()\n"
        "print(len({line.split()[-1] for line in maps.splitlines() if 'gomp' in line or 'iomp' in line}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"
