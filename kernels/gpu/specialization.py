"""How kernels are launched, and compiled ahead of time: every combination of types and constants that is launched."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

HEAD_DIMS = (64, 80, 96, 128, 256)
TYPE_NAMES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}


@dataclass(frozen=True)
class Specialization:
    """One compiled form of a kernel.

    kernel: the @triton.jit function. signature: parameter → "*fp16", "i32", "fp32", "constexpr" and so on, in the
    kernel's order; a tuple of these where the parameter is one. constants: the value of every "constexpr" parameter, a
    tuple for a tuple; an option that is off is the constant None. launched: its launch_options.
    """

    kernel: Any
    signature: dict[str, Any]
    constants: dict[str, Any]
    launched: dict[str, int]
    label: str

    def leaves(self) -> "Iterator[Leaf]":
        """All arguments, those in tuples one by one."""
        for index, (name, kind) in enumerate(self.signature.items()):
            value = self.constants.get(name)
            if not isinstance(kind, tuple):
                yield Leaf((index,), kind, value)
                continue
            values = value or (None,) * len(kind)
            for member, (its_kind, its_value) in enumerate(zip(kind, values, strict=True)):
                yield Leaf((index, member), its_kind, its_value)


@dataclass(frozen=True)
class Leaf:
    """path: where it stands among the parameters, and in a tuple. value: of a constant."""

    path: tuple[int, ...]
    kind: str
    value: object


def launch_options(num_warps: int, num_stages: int) -> dict[str, int]:
    """The options of every launch.

    The compiler must not fuse a · b + c to one rounding: which ones it fuses is another matter in each version, and may
    be in each copy of an unrolled loop, so that a row's result would depend on its place among others. Dot products are
    fused all the same; what else gains by it says tl.fma. Without this option Triton 3.9 fuses and 3.10 does not.
    """
    return {"num_warps": num_warps, "num_stages": num_stages, "enable_fp_fusion": False}
