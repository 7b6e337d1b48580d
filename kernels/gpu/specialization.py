"""What is compiled ahead of time: every combination of types and constants a launcher really launches."""

from dataclasses import dataclass
from typing import Any

import torch

HEAD_DIMS = (64, 80, 96, 128, 256)
TYPE_NAMES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}


@dataclass(frozen=True)
class Specialization:
    """One compiled form of a kernel.

    kernel: the @triton.jit function. signature: parameter → "*fp16", "i32", "fp32", "constexpr" and so on, in the
    kernel's order. constants: the value of every "constexpr" parameter; an option that is off is the constant None.
    """

    kernel: Any
    signature: dict[str, str]
    constants: dict[str, object]
    num_warps: int
    num_stages: int
    label: str
