"""Prompts that begin alike as neighbours, and how much each has in common with the one before it."""

import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from batchrunner.simulate.loads import SimRow

_TOKEN = np.dtype(">u4")  # big-endian: the order of the bytes is the order of the ids, as in data/spool.py


@dataclass(frozen=True, slots=True)
class PromptOrder:
    """by_prefix: rows in the depth-first order of their prefix tree. num_shared, by row: how many tokens its prompt
    begins with that the prompts before it in this order begin with, too; the sum over the rest is the tree's size."""

    by_prefix: list[int]
    num_shared: list[int]

    @classmethod
    def of(cls, rows: Sequence[SimRow]) -> "PromptOrder":
        prompts = [_big_endian(row.token_ids) for row in rows]
        by_prefix = sorted(range(len(rows)), key=prompts.__getitem__)
        num_shared = [0] * len(rows)
        for before, row in pairwise(by_prefix):
            num_shared[row] = _num_common(prompts[before], prompts[row])
        return cls(by_prefix, num_shared)


def _big_endian(token_ids: list[int]) -> bytes:
    tokens = array("I", token_ids)
    if sys.byteorder == "little":
        tokens.byteswap()
    return tokens.tobytes()


def _num_common(left: bytes, right: bytes) -> int:
    size = min(len(left), len(right))
    if left[:4] != right[:4] or not size:
        return 0
    differs = np.frombuffer(left[:size], _TOKEN) != np.frombuffer(right[:size], _TOKEN)
    first = int(differs.argmax())
    return first if differs[first] else size // _TOKEN.itemsize
