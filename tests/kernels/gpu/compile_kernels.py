"""Compile every specialization of the GPU kernels for every target; no GPU is needed.

    python tests/kernels/gpu/compile_kernels.py [module of kernels/gpu …]

Prints a JSON line for each: kernel, label, target, registers, spills (registers spilled, in bytes on CUDA and in
registers on HIP), shared (bytes). Arguments are compiled as they mostly come: pointers and integers multiples of 16,
which gives the widest loads and the largest buffers, but for those of which a kernel takes any value in one form
(do_not_specialize). Triton must be imported without TRITON_INTERPRET.
"""

import contextlib
import importlib
import io
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import batchrunner.kernels
from batchrunner.kernels.gpu.specialization import Specialization

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}


def all_modules() -> list[str]:
    folders = [Path(folder) / "gpu" for folder in batchrunner.kernels.__path__]
    return sorted(path.stem for folder in folders for path in folder.glob("*.py"))


def specializations(module: str) -> list[Specialization]:
    found = importlib.import_module(f"batchrunner.kernels.gpu.{module}")
    return found.specializations() if hasattr(found, "specializations") else []


def compile_for(target: GPUTarget, specialization: Specialization) -> dict[str, Any]:
    kernel, signature = specialization.kernel, specialization.signature
    leaves = list(specialization.leaves())
    multiples_of_16 = [
        leaf.path
        for leaf in leaves
        if re.fullmatch(r"\*.+|i32|i64", leaf.kind) and not kernel.params[leaf.path[0]].do_not_specialize
    ]
    attributes = {path: [["tt.divisibility", 16]] for path in multiples_of_16}
    constants = {leaf.path: leaf.value for leaf in leaves if leaf.kind == "constexpr"}
    source = ASTSource(kernel, signature, constants, attributes)
    with contextlib.redirect_stdout(io.StringIO()) as log:
        compiled = triton.compile(source, target=target, options=specialization.launched)
    if target.backend == "cuda":
        report = log.getvalue()
        registers = numbers(r"Used (\d+) registers", report)
        spills = numbers(r"(\d+) bytes spill (?:stores|loads)", report)
    else:
        report = compiled.asm["amdgcn"]
        registers = numbers(r"\.vgpr_count:\s+(\d+)", report)
        spills = numbers(r"\.[vs]gpr_spill_count:\s+(\d+)", report)
    return {"registers": max(registers), "spills": sum(spills), "shared": compiled.metadata.shared}


def numbers(pattern: str, text: str) -> list[int]:
    found = [int(number) for number in re.findall(pattern, text)]
    assert found, f"no {pattern} in what the compiler reports:\n{text}"
    return found


def main(modules: list[str]) -> None:
    triton.knobs.nvidia.dump_ptxas_log = True  # it holds registers and spills
    with tempfile.TemporaryDirectory() as cache:  # ptxas reports only what it compiles anew
        triton.knobs.cache.dir = cache
        for module in modules:
            for specialization in specializations(module):
                for name, target in TARGETS.items():
                    figures = compile_for(target, specialization)
                    kernel = f"{module}.{specialization.kernel.__name__}"
                    print(json.dumps({"kernel": kernel, "label": specialization.label, "target": name, **figures}))
                    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:] or all_modules())
