"""What a planned run will take on this machine: its rows through the simulator, with speeds that were measured.

Of a long run two parts of its order are simulated; the rest takes what they take for the like work. Where that would
take seconds, too (many seats, long answers), a run of steps like the average one is all that is looked at.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from batchrunner.engine.model.speeds import Speeds
from batchrunner.engine.scheduling.build_scheduler import limits_for
from batchrunner.engine.scheduling.step_work import StepWork
from batchrunner.forecast.parts import NotedWork, Part, RunForecast, scaled
from batchrunner.simulate.cost.device import Device
from batchrunner.simulate.cost.measured_steps import MeasuredSteps
from batchrunner.simulate.cost.model_shape import ModelShape
from batchrunner.simulate.cost.model_work import ModelWork
from batchrunner.simulate.load.loads import SimRow
from batchrunner.simulate.load.prompt_order import PromptOrder
from batchrunner.simulate.simulator import Simulator
from batchrunner.spec.engine import EngineConfig, Tiers

Ints = npt.NDArray[np.int64]

MAX_ROWS = 2_000  # simulated
MAX_OUTPUT_TOKENS = 400_000  # of simulated rows: a second
NUM_PARTS = 2
MIN_TURNS = 2  # how often a part fills the seats, to say anything of a long run
SCHEDULING_SECONDS = 0.0005
LINK_BYTES_PER_SECOND = 10e9  # to host memory, where it was not measured
DISK_BYTES_PER_SECOND = 1e9


@dataclass(frozen=True, slots=True)
class PlannedRows:
    """The rows of a run in their order. num_prompt, num_new, num_output [n]: tokens of the prompt, those of them to
    compute when memory is enough, those of the answer. num_to_compute: of all prompts together. rows: some places in
    the order, ascending, and tokens of the answers there → the rows."""

    num_prompt: Ints
    num_new: Ints
    num_output: Ints
    num_to_compute: int
    rows: Callable[[Ints, Ints], list[SimRow]]

    def __len__(self) -> int:
        return len(self.num_prompt)

    def with_output(self, num_output: Ints) -> "PlannedRows":
        return replace(self, num_output=num_output)


class Forecaster:
    """A model on this machine. kind: "cpu" or "cuda"; num_blocks, num_host_blocks: of the pool and the host tier."""

    def __init__(
        self,
        config: EngineConfig,
        shape: ModelShape,
        speeds: Speeds,
        kind: str,
        num_blocks: int,
        num_host_blocks: int,
    ) -> None:
        self._shape = shape
        self._speeds = speeds
        size = config.block_size
        self._config = config.model_copy(
            update={
                "kv_tokens": num_blocks * size,
                "kv_memory": "auto",
                "lengths": "history",
                "tiers": Tiers(host=num_host_blocks * size * shape.kv_bytes_per_token),
            }
        )
        self._device = Device(
            name=kind,
            flops=speeds.flops_per_second,
            bytes_per_second=speeds.bytes_per_second,
            memory_bytes=shape.weight_bytes + 2.0 * num_blocks * size * shape.kv_bytes_per_token,
            link_bytes_per_second=LINK_BYTES_PER_SECOND,
            disk_bytes_per_second=DISK_BYTES_PER_SECOND,
            flops_efficiency=1.0,
            bytes_efficiency=1.0,
            step_overhead_seconds=speeds.overhead_seconds,
            scheduling_seconds=SCHEDULING_SECONDS,
        )
        self._limits = limits_for(config, kind)
        self._num_kv_tokens = num_blocks * size
        self.num_seats = self._limits.max_running

    def forecast(self, rows: PlannedRows) -> RunForecast:
        if len(rows) <= MAX_ROWS and rows.num_output.sum() <= MAX_OUTPUT_TOKENS:
            return self._simulate(rows, np.arange(len(rows))).whole()
        mean_output = max(1.0, float(rows.num_output.mean()))
        size = int(min(max(MAX_ROWS, MIN_TURNS * NUM_PARTS * self.num_seats), MAX_OUTPUT_TOKENS / mean_output))
        size = min(size, len(rows)) // NUM_PARTS
        if size < MIN_TURNS * self.num_seats:
            return self._average(rows)
        firsts = [(2 * part + 1) * len(rows) // (2 * NUM_PARTS) - size // 2 for part in range(NUM_PARTS)]
        parts = [self._simulate(rows, np.arange(first, first + size)) for first in firsts]
        work = self._work(rows.num_prompt, rows.num_new, rows.num_output)
        return scaled(parts, float(work.sum()), rows.num_to_compute)

    def _average(self, rows: PlannedRows) -> RunForecast:
        """As many steps as the seats and the tokens of a step allow, all of them alike."""
        num_output, num_prompt = rows.num_output.astype(np.float64), rows.num_prompt.astype(np.float64)
        own = float((rows.num_new + num_output / 2).mean())
        num_running = max(1, min(len(rows), self.num_seats, int(self._num_kv_tokens / max(1.0, own))))
        num_tokens = rows.num_to_compute + int(num_output.sum())
        num_steps = max(
            int(num_output.max()),
            int(num_output.sum() / num_running),
            -(-num_tokens // self._limits.max_batch_tokens),
        )
        num_attended = float((num_output * (num_prompt + num_output / 2)).sum())
        num_attended += float((rows.num_new * (num_prompt - rows.num_new / 2)).sum())
        held = int(num_running * own)
        step = StepWork(
            num_tokens=max(1, num_tokens // num_steps),
            num_samples=max(1, int(num_output.sum()) // num_steps),
            num_attended=int(num_attended / num_steps),
            num_context=held,
        )
        steps, model = MeasuredSteps(self._shape, self._speeds, self._config.block_size), ModelWork.of(self._shape)
        num_bytes = model.num_weight_bytes(step.num_tokens) + model.num_kv_bytes(held, step.num_tokens)
        return RunForecast(
            seconds=num_steps * (steps.num_seconds(step, held) + SCHEDULING_SECONDS),
            compute_seconds=num_steps * model.num_flops(step) / self._speeds.flops_per_second,
            memory_seconds=num_steps * num_bytes / self._speeds.bytes_per_second,
            num_steps=num_steps,
            num_to_compute=rows.num_to_compute,
            peak_kv_tokens=min(self._num_kv_tokens, held),
            most_running=num_running,
            num_refused=int(np.count_nonzero(rows.num_prompt + rows.num_output - 1 > self._num_kv_tokens)),
        )

    def _simulate(self, rows: PlannedRows, places: Ints) -> Part:
        sim_rows = rows.rows(places, rows.num_output[places])
        costs = NotedWork(MeasuredSteps(self._shape, self._speeds, self._config.block_size))
        simulator = Simulator(self._config, self._shape, self._device, costs)
        report = simulator.run(sim_rows, queue=range(len(sim_rows)))
        num_prompt, num_shared = rows.num_prompt[places], np.array(PromptOrder.of(sim_rows).num_shared)
        num_new = num_prompt - np.minimum(num_shared, num_prompt - 1) * self._config.prefix_caching
        work = self._work(num_prompt, num_new, rows.num_output[places])
        model = ModelWork.of(self._shape)
        num_bytes = report.num_steps * model.active_weight_bytes
        num_bytes += model.num_kv_bytes(costs.work.num_context, costs.work.num_tokens)
        return Part(
            report=report,
            compute_seconds=model.num_flops(costs.work) / self._speeds.flops_per_second,
            memory_seconds=num_bytes / self._speeds.bytes_per_second,
            block_size=self._config.block_size,
            work=float(work.sum()),
            num_new=int(num_new.sum()),
        )

    def _work(self, num_prompt: Ints, num_new: Ints, num_output: Ints) -> npt.NDArray[np.float64]:
        """Seconds of each row, about: what parts are scaled by."""
        shape, speeds = self._shape, self._speeds
        flops = 2.0 * shape.num_active_parameters * (num_new + num_output)
        read = shape.kv_bytes_per_token * num_output * (num_prompt + num_output / 2)
        weights = shape.weight_bytes * num_output / self.num_seats
        seconds: npt.NDArray[np.float64] = flops / speeds.flops_per_second + (read + weights) / speeds.bytes_per_second
        return seconds
