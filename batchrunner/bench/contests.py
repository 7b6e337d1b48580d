"""The same rows in two ways, one after the other in one process: what each choice of the engine brings."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from batchrunner.bench.results import Contest, Entrant
from batchrunner.bench.workloads import Workloads, WorkRow
from batchrunner.engine.model.model_files import ModelFiles
from batchrunner.engine.model.model_runner import ModelRunner
from batchrunner.engine.model.prefix_groups import NO_GROUPS, GroupRule
from batchrunner.generate.engine import Engine
from batchrunner.spec.engine import EngineConfig

SEATS = 16  # of the contest of batchings: a static batch waits for its longest answer, the more so the fewer there are


@dataclass(frozen=True, slots=True)
class Way:
    """Options of the engine beside the user's; group_rule: None is the device's own."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    group_rule: GroupRule | None = None


def run_contests(
    files: ModelFiles,
    config: EngineConfig,
    workloads: Workloads,
    num_rows: int,
    on_contest: Callable[[Contest], None],
) -> list[Contest]:
    """num_rows: of each workload. Each engine is loaded anew."""
    mixed = workloads.mixed(num_rows)
    shared = workloads.annotate(num_rows, num_shared=1600, num_own=16)
    instructions = workloads.annotate(num_rows, num_instructions=16, num_shared=400)
    # Room for a third of the instructions: an order that comes back to one later must compute it again.
    few = {"prefix_caching": True, "kv_memory": "auto", "kv_tokens": max(2048, 16 * 400 // 3), "max_running": SEATS}
    contests = []
    for workload, rows, ours, other in (
        (
            "lengths that differ",
            mixed,
            Way("continuous batching", {"max_running": SEATS, "batching": "continuous"}),
            Way("static batching", {"max_running": SEATS, "batching": "static"}),
        ),
        (
            "one long instruction",
            shared,
            Way("prefix groups", {"prefix_caching": True}),
            Way("each request alone", {"prefix_caching": True}, NO_GROUPS),
        ),
        (
            "16 instructions, little KV memory",
            instructions,
            Way("policy prefix", {**few, "policy": "prefix"}),
            Way("policy fcfs", {**few, "policy": "fcfs"}),
        ),
    ):
        contests.append(
            Contest(workload, run_entrant(files, config, rows, ours), run_entrant(files, config, rows, other))
        )
        on_contest(contests[-1])
    return contests


def run_entrant(files: ModelFiles, config: EngineConfig, rows: Sequence[WorkRow], way: Way) -> Entrant:
    """Raises RowError if a row cannot be answered."""
    with Engine(files, **{**config.model_dump(), **way.options}) as engine:
        if way.group_rule is not None:
            assert isinstance(engine.runner, ModelRunner)
            engine.runner.group_rule = way.group_rule
        first = rows[0]
        engine.generate([first.token_ids[::-1]], first.sampling.model_copy(update={"max_tokens": 2}))  # warm up
        num_steps, num_computed = engine.counters.num_steps, engine.counters.num_computed_tokens
        started = time.perf_counter()
        completions = engine.generate([row.token_ids for row in rows], [row.sampling for row in rows])
        seconds = time.perf_counter() - started
        for completion in completions:
            if completion.error is not None:
                raise completion.error  # a row that fails is a fast row
        return Entrant(
            name=way.name,
            seconds=seconds,
            num_rows=len(rows),
            num_steps=engine.counters.num_steps - num_steps,
            num_computed_tokens=engine.counters.num_computed_tokens - num_computed,
        )
