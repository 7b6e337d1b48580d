"""Continuous against static batching, prefix caching against none: SmolLM2, one process, side by side."""

import time
from typing import Any

from conftest import SMOLLM2
from workloads import WorkRow, annotate, mixed

from batchrunner import Engine


def seconds(rows: list[WorkRow], **options: Any) -> float:
    with Engine(SMOLLM2, kv_tokens=90_000, **options) as engine:
        engine.generate([rows[0].token_ids[:32]], rows[0].sampling.model_copy(update={"max_tokens": 4}))
        started = time.perf_counter()
        engine.generate([row.token_ids for row in rows], [row.sampling for row in rows])
        return time.perf_counter() - started


def test_continuous_batching_beats_static() -> None:
    rows = mixed()
    continuous = seconds(rows, max_running=16)
    static = seconds(rows, max_running=16, batching="static")
    print(f"\nmixed, 16 at once: continuous {continuous:.1f} s, static {static:.1f} s, ratio {static / continuous:.2f}")
    assert static >= 1.25 * continuous


def test_prefix_caching_beats_computing_again() -> None:
    rows = annotate(num_rows=64)
    cached = seconds(rows)
    alone = seconds(rows, prefix_caching=False)
    print(f"\nannotate, 64 rows: cached {cached:.1f} s, not cached {alone:.1f} s, ratio {alone / cached:.2f}")
    assert alone >= 2 * cached
