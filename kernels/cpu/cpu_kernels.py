"""The kernels in C: float32 on the CPU. attention.c and elementwise.c say what each does."""

import ctypes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from batchrunner.kernels.attention_work import AttentionOptions, AttentionWork
from batchrunner.kernels.cpu.build import load_library
from batchrunner.kernels.paged_attention import write_kv

Ints = npt.NDArray[np.int32]


class _Step(ctypes.Structure):
    """`Step` in attention.c, field by field."""

    _fields_ = (
        ("query", ctypes.c_void_p),
        ("query_stride", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("keys", "values", "out", "maxima", "sums", "positions")),
        *((name, ctypes.c_void_p) for name in ("rows", "tables", "items", "pass_begins", "sinks", "head_scales")),
        *((name, ctypes.c_int32) for name in ("num_passes", "num_rows", "num_heads", "num_kv_heads", "block_size")),
        ("window", ctypes.c_int32),
        ("scale", ctypes.c_float),
        ("softcap", ctypes.c_float),
    )


@dataclass(frozen=True, slots=True)
class CpuPlan:
    """The work as attention.c takes it: items [N, 5] in passes, over rows and tables of all items."""

    positions: Ints
    rows: Ints
    tables: Ints
    items: Ints
    pass_begins: Ints


class CpuKernels:
    """Compiled for the given (head_dim, dim of v) of the model's layers. Raises BuildError."""

    name = "C"

    def __init__(self, head_dims: Iterable[tuple[int, int]]) -> None:
        self._elementwise = load_library("elementwise", {})
        self._attention = {
            dims: load_library("attention", {"HEAD_DIM": dims[0], "VALUE_DIM": dims[1]}) for dims in set(head_dims)
        }

    def plan(self, work: AttentionWork, block_size: int) -> CpuPlan:
        """Groups first, level by level; then every request over what is its own, those with most to do first."""
        rows: list[int] = []
        tables: list[int] = []
        items: list[tuple[int, int, int, int, int]] = []

        def add(item_rows: Sequence[int], block_table: Sequence[int], kv_begin: int, kv_end: int) -> None:
            items.append((len(rows), len(rows) + len(item_rows), len(tables), kv_begin, kv_end))
            rows.extend(item_rows)
            tables.extend(block_table[kv_begin // block_size : -(-kv_end // block_size)])

        for level in work.levels:
            for group in level:
                add(group.rows, group.block_table, group.kv_begin, group.kv_end)
        for segment in sorted(work.segments, key=lambda segment: -segment.num_tokens):
            add(
                range(segment.start, segment.start + segment.num_tokens),
                segment.block_table,
                segment.kv_begin,
                segment.context_len,
            )
        sizes = [*map(len, work.levels), len(work.segments)]
        return CpuPlan(
            work.positions(),
            np.array(rows, dtype=np.int32),
            np.array(tables, dtype=np.int32),
            np.array(items, dtype=np.int32),
            np.array([0, *accumulate(sizes)], dtype=np.int32),
        )

    def attend(
        self, query: Tensor, k_cache: Tensor, v_cache: Tensor, plan: CpuPlan, options: AttentionOptions
    ) -> Tensor:
        num_rows, num_heads, head_dim = query.shape
        if query.stride()[1:] != (head_dim, 1):
            query = query.contiguous()
        out = query.new_empty(num_rows, num_heads, v_cache.shape[3])
        state = query.new_empty(2, num_rows, num_heads)
        sinks, head_scales = _floats(options.sinks), _floats(options.head_scales)
        step = _Step(
            query=query.data_ptr(),
            query_stride=query.stride(0),
            keys=k_cache.data_ptr(),
            values=v_cache.data_ptr(),
            out=out.data_ptr(),
            maxima=state[0].data_ptr(),
            sums=state[1].data_ptr(),
            positions=plan.positions.ctypes.data,
            rows=plan.rows.ctypes.data,
            tables=plan.tables.ctypes.data,
            items=plan.items.ctypes.data,
            pass_begins=plan.pass_begins.ctypes.data,
            sinks=None if sinks is None else sinks.data_ptr(),
            head_scales=None if head_scales is None else head_scales.data_ptr(),
            num_passes=len(plan.pass_begins) - 1,
            num_rows=num_rows,
            num_heads=num_heads,
            num_kv_heads=k_cache.shape[1],
            block_size=k_cache.shape[2],
            window=options.window,
            scale=options.scale,
            softcap=options.softcap,
        )
        if self._attention[head_dim, v_cache.shape[3]].attend(ctypes.byref(step)):
            raise MemoryError("no memory for the work list of attention")
        return out

    def write_kv(self, key: Tensor, value: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor) -> None:
        write_kv(key, value, k_cache, v_cache, slots)

    def copy_blocks(self, cache: Tensor, sources: Tensor, targets: Tensor) -> None:
        cache[targets] = cache[sources]

    def rotate_and_write_kv(
        self, qkv: Tensor, cos: Tensor, sin: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor, num_heads: int
    ) -> Tensor:
        num_kv_heads, block_size, head_dim = k_cache.shape[1:]
        self._call(
            "rotate_and_write_kv",
            (qkv, cos, sin, k_cache, v_cache, slots),
            (qkv.shape[0], num_heads, num_kv_heads, head_dim, cos.shape[1], block_size),
        )
        return qkv.view(qkv.shape[0], -1, head_dim)[:, :num_heads]

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        out = torch.empty_like(x)
        self._normalise("rms_norm", (x, weight), eps, out)
        return out

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
        out = torch.empty_like(x)
        self._normalise("add_rms_norm", (x, residual, weight), eps, out)
        return out

    def swiglu(self, gate_up: Tensor) -> Tensor:
        num_rows, width = gate_up.shape
        out = gate_up.new_empty(num_rows, width // 2)
        self._call("swiglu", (gate_up, out), (num_rows, width // 2))
        return out

    def _normalise(self, name: str, tensors: tuple[Tensor, ...], eps: float, out: Tensor) -> None:
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
        sizes = [ctypes.c_int64(size) for size in out.shape]
        getattr(self._elementwise, name)(*pointers, ctypes.c_float(eps), ctypes.c_void_p(out.data_ptr()), *sizes)

    def _call(self, name: str, tensors: tuple[Tensor, ...], sizes: tuple[int, ...]) -> None:
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
        getattr(self._elementwise, name)(*pointers, *map(ctypes.c_int64, sizes))


def _floats(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.float().contiguous()
