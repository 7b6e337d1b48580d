"""`batchrun bench`: a model on this machine, measured."""

import json
from collections.abc import Callable
from pathlib import Path

from batchrunner.bench.contests import run_contests
from batchrunner.bench.curve import NUM_OUTPUT, NUM_PROMPT, batch_curve
from batchrunner.bench.machine import this_machine
from batchrunner.bench.picture import draw
from batchrunner.bench.results import BenchResult
from batchrunner.bench.workloads import Workloads
from batchrunner.engine.model.device import device_for
from batchrunner.engine.model.model_files import find_model
from batchrunner.errors import DeviceError
from batchrunner.generate.engine import Engine
from batchrunner.spec.engine import EngineConfig


def run_bench(
    model: str,
    config: EngineConfig,
    num_rows: int,
    max_batch: int,
    on_progress: Callable[[str], None] = lambda text: None,
) -> BenchResult:
    """Measure the batch curve (1, 2, 4 … up to max_batch requests) and the contests (num_rows rows each).

    on_progress is told each result. Raises ModelError, DeviceError, RowError (a workload's row
    cannot be answered: the KV pool is too small, or the model fails).
    """
    files = find_model(model)
    batch_sizes = [1 << power for power in range(max_batch.bit_length())]
    most = batch_sizes[-1]
    try:
        engine = Engine(files, **_with_room(config, most).model_dump())
    except DeviceError as error:
        raise DeviceError(f"for a batch of {most:,} requests: {error}; or a smaller --max-batch") from error
    with engine:
        kernels, machine = engine.kernels, this_machine(device_for(config))
        workloads = Workloads(engine.runner.vocabulary_size, engine.context_len)
        curve = batch_curve(engine, workloads, batch_sizes, lambda point: on_progress(str(point)))
    contests = run_contests(files, config, workloads, num_rows, lambda contest: on_progress(str(contest)))
    return BenchResult(model, kernels, machine, curve, contests)


def write_bench(result: BenchResult, folder: Path) -> None:
    """Write bench.json and bench.png into a folder that is there. Raises OSError."""
    (folder / "bench.json").write_text(json.dumps(result.to_dict(), indent=2) + "\n", encoding="utf-8")
    draw(result, folder / "bench.png")


def _with_room(config: EngineConfig, num_requests: int) -> EngineConfig:
    """All requests of the largest batch begin in one step and run at once, each with blocks of its own."""
    num_blocks = num_requests * -(-(NUM_PROMPT + NUM_OUTPUT) // config.block_size)
    room = {
        "kv_memory": "auto",
        "kv_tokens": num_blocks * config.block_size,
        "max_running": num_requests,
        "max_batch_tokens": num_requests * NUM_PROMPT,
    }
    return config.model_copy(update=room)
