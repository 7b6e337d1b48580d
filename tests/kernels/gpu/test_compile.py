"""Every GPU kernel compiles for every target, without spilled registers and within the chip's shared memory."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import batchrunner.kernels

SCRIPT = Path(__file__).with_name("compile_kernels.py")
SHARED_BYTES = {"sm_80": 163 * 1024, "sm_90": 227 * 1024, "gfx942": 64 * 1024}  # what one block may ask for

# Module → its kernels, each with the number of its forms: types × tiles, or types × head dims × options.
KERNELS = {
    "block_copy": {"_gather_blocks_kernel": 3, "_scatter_blocks_kernel": 3},
    "merge_states": {"merge_states_kernel": 5, "merge_splits_kernel": 30},
    "paged_chunks": {"paged_chunks_kernel": 30},
    "paged_decode": {"paged_decode_kernel": 30},
    "prefix_group": {"prefix_group_kernel": 30},
    "rms_norm": {"_rms_norm_kernel": 21, "_add_rms_norm_kernel": 21},
    "rotary_kv": {"_rotate_and_write_kv_kernel": 9, "_write_kv_kernel": 9},
    "sampling": {"_sample_kernel": 3},
    "swiglu": {"_swiglu_kernel": 3},
}


def test_every_module_with_kernels_to_launch_is_compiled() -> None:
    files = [path for folder in batchrunner.kernels.__path__ for path in (Path(folder) / "gpu").glob("*.py")]
    assert {path.stem for path in files if "def specializations(" in path.read_text()} == set(KERNELS)


@pytest.mark.slow
@pytest.mark.parametrize("module", KERNELS)
def test_kernels_compile_without_spills_and_fit(module: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    run = subprocess.run([sys.executable, SCRIPT, module], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    compiled = [json.loads(line) for line in run.stdout.splitlines()]
    expected = {(f"{module}.{name}", target): n for name, n in KERNELS[module].items() for target in SHARED_BYTES}
    assert Counter((form["kernel"], form["target"]) for form in compiled) == expected
    assert [form for form in compiled if form["spills"]] == []
    assert [form for form in compiled if form["shared"] > SHARED_BYTES[form["target"]]] == []
