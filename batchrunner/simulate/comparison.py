"""The same rows under several configurations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from batchrunner.engine.kv.places import Place
from batchrunner.engine.scheduling.predictors.oracle import Oracle
from batchrunner.engine.scheduling.predictors.predictor import TextOf
from batchrunner.simulate.cost.device import Device
from batchrunner.simulate.cost.model_shape import ModelShape
from batchrunner.simulate.cost.sizes import prefill_seconds
from batchrunner.simulate.load.loads import SimRow
from batchrunner.simulate.report import SimReport
from batchrunner.simulate.simulator import Simulator
from batchrunner.spec.engine import EngineConfig


@dataclass(frozen=True, slots=True)
class Variant:
    """knows_lengths: the scheduler is told how long the answers will be."""

    label: str
    config: EngineConfig
    knows_lengths: bool = False


@dataclass(frozen=True, slots=True)
class Comparison:
    """reports: by the labels of the variants. pool and swap are those of the first variant."""

    title: str
    pool: str
    swap: str
    reports: dict[str, SimReport]

    def to_dict(self) -> dict[str, Any]:
        reports = {label: report.to_dict() for label, report in self.reports.items()}
        return {"title": self.title, "pool": self.pool, "swap": self.swap, "runs": reports}


def compare(
    variants: Sequence[Variant],
    rows: Sequence[SimRow],
    shape: ModelShape,
    device: Device,
    title: str,
    text_of: TextOf | None,
    on_start: Callable[[str], None],
) -> Comparison:
    """on_start is told the label of each variant before it runs. Raises DeviceError, UsageError."""
    simulators = [Simulator(variant.config, shape, device, text_of=text_of) for variant in variants]
    oracle = Oracle({str(index): row.num_output_tokens for index, row in enumerate(rows)})
    reports = {}
    for variant, simulator in zip(variants, simulators, strict=True):
        on_start(variant.label)
        reports[variant.label] = simulator.run(rows, oracle if variant.knows_lengths else None)
    return Comparison(title, _pool(simulators[0], shape), _swap(simulators[0]), reports)


def _pool(simulator: Simulator, shape: ModelShape) -> str:
    num_tokens = simulator.sizes.pool * simulator.config.block_size
    size = num_tokens * shape.kv_bytes_per_token / 1e9
    return f"KV pool: {num_tokens:,} tokens of {shape.kv_bytes_per_token:,} bytes, {size:,.1f} GB"


def _swap(simulator: Simulator) -> str:
    """What `preemption: auto` weighs."""
    costs, block_size, num_tokens = simulator.costs, simulator.config.block_size, simulator.limits.max_batch_tokens
    moved = costs.block_seconds(Place.DEVICE, Place.HOST) + costs.block_seconds(Place.HOST, Place.DEVICE)
    computed = prefill_seconds(costs, num_tokens) * block_size / num_tokens
    cheaper = "swapping" if moved < computed else "recomputing"
    return (
        f"1,000 tokens of KV: to host memory and back in {1e6 * moved / block_size:,.1f} ms, computed again in "
        f"{1e6 * computed / block_size:,.1f} ms; {cheaper} is cheaper"
    )
