"""Compile the C kernels on the machine that runs them, once, and load them.

Compiled for the very chip (-march=native), and for one head size, which the compiler then unrolls. About a second for
each; the library is kept by the content of its sources, the compiler, the flags and the chip.

Why C: a naive kernel in numba read the cache at 6 to 11 GB/s where this one reads at the rate of the memory, and needs
no compilation by LLVM in every process; torch.compile has no paged attention to offer.
"""

import ctypes
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from batchrunner.cache_folder import cache_folder

_SOURCES = Path(__file__).resolve().parent
# No -ffast-math: it may undo the rounding trick in exp_vec. Vectors are written out, so little is lost.
_FLAGS = ("-O3", "-march=native", "-std=gnu11", "-fPIC", "-fopenmp", "-fno-math-errno", "-fno-trapping-math")


class BuildError(Exception):
    """There is no C compiler, or it fails; the message says what to do."""


def load_library(name: str, defines: dict[str, int]) -> ctypes.CDLL:
    """The library compiled from name.c with these macros. Raises BuildError."""
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if compiler is None:
        raise BuildError("no C compiler (cc or gcc) on the PATH; install one for fast kernels on the CPU")
    macros = [f"-D{key}={value}" for key, value in sorted(defines.items())]
    path = cache_folder() / "kernels" / f"{name}-{_digest(compiler, macros)}.so"
    if not path.exists():
        _compile(compiler, macros, _SOURCES / f"{name}.c", path)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise BuildError(f"{path}: cannot be loaded: {error}") from error


def _compile(compiler: str, macros: list[str], source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".building-", dir=target.parent) as scratch:
        compiled = Path(scratch) / "object.o"
        library = Path(scratch) / "library.so"
        # OpenMP is used but not linked: the symbols are those of the runtime that torch has loaded. A second runtime
        # beside it, with its own spinning threads, made everything up to twice slower.
        _run([compiler, *_FLAGS, *macros, "-c", str(source), "-o", str(compiled)])
        _run([compiler, "-shared", str(compiled), "-o", str(library), "-lm"])
        library.replace(target)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise BuildError(f"{' '.join(command)}: {done.stderr.strip()[:2000]}")


@cache
def _version(compiler: str) -> str:
    return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout  # noqa: S603


def _digest(compiler: str, macros: list[str]) -> str:
    parts = (compiler, _version(compiler), _FLAGS, macros, platform.machine(), _cpu_flags())
    digest = hashlib.sha256(repr(parts).encode())
    for source in sorted(_SOURCES.glob("*.[ch]")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:24]


def _cpu_flags() -> str:
    """A cache folder may be shared by machines with different chips."""
    info = Path("/proc/cpuinfo")
    found = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", info.read_text(), re.MULTILINE) if info.exists() else None
    return found[1] if found else platform.processor()
