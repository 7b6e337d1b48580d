"""What a planned run will take on this machine: its rows through the simulator, with speeds that were measured.

Of a long run parts of its order are simulated; the rest takes what they take for the like work.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from batchrunner.engine.build_scheduler import limits_for
from batchrunner.engine.schedule import Place, Schedule
from batchrunner.engine.speeds import Speeds
from batchrunner.engine.step_work import StepWork
from batchrunner.engine_spec import EngineConfig, Tiers
from batchrunner.simulate.device import Device
from batchrunner.simulate.least_work import LeastWork
from batchrunner.simulate.loads import SimRow
from batchrunner.simulate.measured_steps import MeasuredSteps
from batchrunner.simulate.model_shape import ModelShape
from batchrunner.simulate.model_work import ModelWork
from batchrunner.simulate.prompt_order import PromptOrder
from batchrunner.simulate.report import SimReport
from batchrunner.simulate.roofline import StepCost
from batchrunner.simulate.simulator import Simulator

Ints = npt.NDArray[np.int64]

MAX_ROWS = 2_000  # simulated whole; the simulator takes about 0.3 ms for a row of 128 tokens
MAX_OUTPUT_TOKENS = 200_000
NUM_PARTS = 2
ROUNDING = 0.002  # of what a part computes: rows whose prompt is known whole
SCHEDULING_SECONDS = 0.0005
LINK_BYTES_PER_SECOND = 10e9  # to host memory, where it was not measured
DISK_BYTES_PER_SECOND = 1e9


@dataclass(frozen=True, slots=True)
class PlannedRows:
    """The rows of a run in their order. num_prompt, num_new, num_output [n]: tokens of the prompt, those of them to
    compute when memory is enough, those of the answer. row: place in the order and tokens of the answer → the row."""

    num_prompt: Ints
    num_new: Ints
    num_output: Ints
    row: Callable[[int, int], SimRow]

    def __len__(self) -> int:
        return len(self.num_prompt)

    def with_output(self, num_output: Ints) -> "PlannedRows":
        return replace(self, num_output=num_output)


@dataclass(frozen=True, slots=True)
class RunForecast:
    """compute_seconds, memory_seconds: what the arithmetic alone, and reading alone, would take. num_to_compute: prompt
    tokens, those computed again for want of memory included. num_refused: of the rows that were simulated."""

    seconds: float
    compute_seconds: float
    memory_seconds: float
    num_steps: int
    num_to_compute: int
    peak_kv_tokens: int
    most_running: int
    num_refused: int


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
        self.num_seats = limits_for(config, kind).max_running

    def forecast(self, rows: PlannedRows) -> RunForecast:
        if len(rows) <= MAX_ROWS and rows.num_output.sum() <= MAX_OUTPUT_TOKENS:
            return self._simulate(rows, np.arange(len(rows))).whole()
        parts = [self._simulate(rows, places) for places in self._parts(rows)]
        work = self._work(rows.num_prompt, rows.num_new, rows.num_output)
        return _scaled(parts, float(work.sum()), int(rows.num_new.sum()))

    def _parts(self, rows: PlannedRows) -> list[Ints]:
        """Places of consecutive rows, from within the order: each enough to fill the seats a few times over."""
        mean_output = max(1.0, float(rows.num_output.mean()))
        size = int(max(3 * self.num_seats, min(MAX_ROWS, MAX_OUTPUT_TOKENS / mean_output) / NUM_PARTS))
        size = min(size, len(rows) // NUM_PARTS)
        firsts = [(2 * part + 1) * len(rows) // (2 * NUM_PARTS) - size // 2 for part in range(NUM_PARTS)]
        return [np.arange(first, first + size) for first in firsts]

    def _simulate(self, rows: PlannedRows, places: Ints) -> "_Part":
        sim_rows = [rows.row(place, int(rows.num_output[place])) for place in places.tolist()]
        costs = _Summed(self._shape, self._speeds, self._config.block_size)
        simulator = Simulator(self._config, self._shape, self._device, costs)
        report = simulator.run(sim_rows, queue=range(len(sim_rows)))
        num_prompt, num_shared = rows.num_prompt[places], np.array(PromptOrder.of(sim_rows).num_shared)
        num_new = num_prompt - np.minimum(num_shared, num_prompt - 1)
        work = self._work(num_prompt, num_new, rows.num_output[places])
        return _Part(report, costs, self._config.block_size, float(work.sum()), int(num_new.sum()))

    def _work(self, num_prompt: Ints, num_new: Ints, num_output: Ints) -> npt.NDArray[np.float64]:
        """Seconds of each row, about: what parts are scaled by."""
        shape, speeds = self._shape, self._speeds
        flops = 2.0 * shape.num_active_parameters * (num_new + num_output)
        read = shape.kv_bytes_per_token * num_output * (num_prompt + num_output / 2)
        weights = shape.weight_bytes * num_output / self.num_seats
        seconds: npt.NDArray[np.float64] = flops / speeds.flops_per_second + (read + weights) / speeds.bytes_per_second
        return seconds


class _Summed:
    """Step costs, with what all steps have computed and read."""

    def __init__(self, shape: ModelShape, speeds: Speeds, block_size: int) -> None:
        self._costs = MeasuredSteps(shape, speeds, block_size)
        self._model = ModelWork.of(shape)
        self._speeds = speeds
        self._flops = 0.0
        self._num_bytes = 0.0

    @property
    def compute_seconds(self) -> float:
        return self._flops / self._speeds.flops_per_second

    @property
    def memory_seconds(self) -> float:
        return self._num_bytes / self._speeds.bytes_per_second

    def step(self, schedule: Schedule, num_read_tokens: int | None = None) -> StepCost:
        work, model = StepWork.of(schedule), self._model
        num_read = work.num_context if num_read_tokens is None else min(num_read_tokens, work.num_context)
        self._flops += model.num_flops(work)
        self._num_bytes += model.num_weight_bytes(work.num_tokens) + model.num_kv_bytes(num_read, work.num_tokens)
        return self._costs.step(schedule, num_read_tokens)

    def block_seconds(self, source: Place, target: Place) -> float:
        return self._costs.block_seconds(source, target)

    def least_seconds(self, work: LeastWork) -> float:
        return self._costs.least_seconds(work)


@dataclass(frozen=True, slots=True)
class _Part:
    report: SimReport
    costs: _Summed
    block_size: int
    work: float
    num_new: int

    @property
    def num_to_compute(self) -> int:
        """Prompt tokens, and all tokens computed again."""
        report = self.report
        return report.num_prompt_tokens - report.num_cached_tokens + report.num_recomputed_tokens

    @property
    def steady_seconds(self) -> float:
        """Of its rows at the pace of the middle half of them: without the seats filling and emptying."""
        ends = np.sort(np.fromiter(self.report.end_seconds.values(), np.float64))
        first, last = len(ends) // 4, 3 * len(ends) // 4
        return float(ends[last] - ends[first]) * len(ends) / max(1, last - first)

    def whole(self) -> RunForecast:
        report = self.report
        return RunForecast(
            seconds=report.makespan_seconds,
            compute_seconds=self.costs.compute_seconds,
            memory_seconds=self.costs.memory_seconds,
            num_steps=report.num_steps,
            num_to_compute=self.num_to_compute,
            peak_kv_tokens=report.most_held_blocks * self.block_size,
            most_running=report.most_running,
            num_refused=sum(report.refused.values()),
        )


def _scaled(parts: list[_Part], work: float, num_new: int) -> RunForecast:
    """parts stand for work and num_new of the whole run; seats fill and empty once."""
    wholes = [part.whole() for part in parts]
    share = work / sum(part.work for part in parts)
    steady = sum(part.steady_seconds for part in parts)
    once = sum(whole.seconds - part.steady_seconds for whole, part in zip(wholes, parts, strict=True)) / len(parts)
    num_again = sum(part.num_to_compute for part in parts) / sum(part.num_new for part in parts)
    return RunForecast(
        seconds=share * steady + once,
        compute_seconds=share * sum(whole.compute_seconds for whole in wholes),
        memory_seconds=share * sum(whole.memory_seconds for whole in wholes),
        num_steps=round(share * sum(whole.num_steps for whole in wholes)),
        num_to_compute=round(num_new * num_again) if num_again > 1 + ROUNDING else num_new,
        peak_kv_tokens=max(whole.peak_kv_tokens for whole in wholes),
        most_running=max(whole.most_running for whole in wholes),
        num_refused=sum(whole.num_refused for whole in wholes),
    )
