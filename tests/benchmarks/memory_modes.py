"""Swap, recompute and auto with a quarter of the KV memory the rows would like; one process, one after the other.

Two workloads in which the better of the two differs: SmolLM2, where computing is dear, and a tiny model with blocks of
one token and only a disk below, where each move costs more than the token.

    .venv/bin/python -m tests.benchmarks.memory_modes
"""

import random
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from batchrunner import Engine, SamplingParams
from tests.models import SMOLLM2, build_tiny_model

MODES = ("recompute", "swap", "auto")
REPEATS = 2  # the least of each counts


@dataclass(frozen=True)
class Workload:
    name: str
    model: str
    num_rows: int
    num_prompt: int
    num_output: int
    vocabulary: int
    options: dict[str, Any]


def measure(workload: Workload) -> str:
    """A line of a table. The modes take turns, so that what happens to the machine happens to all."""
    rng = random.Random(0)
    low, high = workload.num_output // 2, workload.num_output * 3 // 2
    prompts = [
        [rng.randrange(3, workload.vocabulary) for _ in range(workload.num_prompt)] for _ in range(workload.num_rows)
    ]
    sampling = [SamplingParams(max_tokens=rng.randrange(low, high), ignore_eos=True) for _ in prompts]
    wanted = sum(workload.num_prompt + params.max_tokens for params in sampling)
    seconds: dict[str, float] = dict.fromkeys(MODES, float("inf"))
    answers, notes = [], {}
    for _ in range(REPEATS):
        for mode in MODES:
            options = {"policy": "fcfs", "kv_tokens": wanted // 4, "preemption": mode, **workload.options}
            with Engine(workload.model, **options) as engine:
                engine.generate([prompts[0][::-1]], [SamplingParams(max_tokens=3, ignore_eos=True)])
                started = time.perf_counter()
                completions = engine.generate(prompts, sampling)
                seconds[mode] = min(seconds[mode], time.perf_counter() - started)
                counters = engine.counters
            answers.append([completion.token_ids for completion in completions])
            moved = counters.num_blocks_from_host + counters.num_blocks_from_disk
            notes[mode] = f"{counters.num_recomputed_tokens:,} tokens computed again, {moved:,} blocks brought back"
    assert all(answer == answers[0] for answer in answers), "the modes differ in their answers"
    best = min(seconds["recompute"], seconds["swap"])
    cells = [f"{seconds[mode]:.2f} s ({notes[mode]})" for mode in MODES]
    return f"| {workload.name} | {' | '.join(cells)} | {seconds['auto'] / best:.2f} |"


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        build_tiny_model("llama", Path(folder) / "model")
        disk = {"host": 0, "disk": {"path": folder, "size": "200MB"}}
        tiny = {"block_size": 1, "max_running": 200, "max_batch_tokens": 1024, "tiers": disk}
        print("| workload | recompute | swap | auto | auto over the better |\n|---|---|---|---|---:|")
        for workload in (
            Workload("SmolLM2, host tier", SMOLLM2, 24, 16, 96, 40_000, {}),
            Workload("tiny model, disk tier", str(Path(folder) / "model"), 200, 16, 120, 150, tiny),
        ):
            print(measure(workload), flush=True)
