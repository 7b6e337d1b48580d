"""A planned run on this machine, as figures that people read."""

import numpy as np

from batchrunner.engine.kv.memory import Budget
from batchrunner.forecast.duration import Duration
from batchrunner.forecast.forecaster import Forecaster, PlannedRows
from batchrunner.forecast.known_speeds import KnownSpeeds
from batchrunner.forecast.parts import RunForecast
from batchrunner.forecast.planned_rows import planned_rows
from batchrunner.plan.prefix_tree import cut_points
from batchrunner.plan.run_plan import RunPlan
from batchrunner.preview.figures import Forecast, Shard, WhatIf
from batchrunner.simulate.cost.model_shape import ModelShape
from batchrunner.spec.engine import EngineConfig

SHORT_SHARE = 0.1  # of max_tokens: the short end of the range where nothing is known of the answers


class Forecasts:
    """A planned run on this machine: as it is, with one thing changed, and shared among several machines."""

    def __init__(
        self, config: EngineConfig, shape: ModelShape, known: KnownSpeeds, kind: str, budget: Budget, plan: RunPlan
    ) -> None:
        self._config = config
        self._shape = shape
        self._known = known
        self._kind = kind
        self._budget = budget
        self._plan = plan
        self._rows = planned_rows(plan)
        self._found = self._forecast(config, budget.num_blocks, self._rows)

    def as_it_is(self) -> Forecast:
        found, plan = self._found, self._plan
        return Forecast(
            duration=self._duration(),
            compute_seconds=found.compute_seconds,
            memory_seconds=found.memory_seconds,
            num_steps=found.num_steps,
            num_prompt_tokens=plan.num_prompt_tokens,
            num_tokens_to_compute=max(found.num_to_compute, plan.num_to_compute),
            num_tokens_lost=max(found.num_to_compute, plan.num_to_compute) - plan.num_least,
            peak_kv_tokens=found.peak_kv_tokens,
            num_kv_tokens=self._budget.num_kv_tokens,
            num_running=found.most_running,
            speeds_from=self._known.source,
        )

    def what_if(self) -> list[WhatIf]:
        """Another block size, more and less memory; not where rows would be refused then."""
        config, budget = self._config, self._budget
        sizes = [size for size in (config.block_size // 2, config.block_size * 2) if size]
        changes = [
            (f"engine.block_size: {size}", config.model_copy(update={"block_size": size}), budget.num_kv_tokens // size)
            for size in sizes
        ]
        changes += [
            ("twice the KV memory", config, 2 * budget.num_blocks),
            ("half the KV memory", config, budget.num_blocks // 2),
        ]
        found = []
        for change, changed, num_blocks in changes:
            if not num_blocks:
                continue
            forecast = self._forecast(changed, num_blocks, self._rows)
            if forecast.num_refused == self._found.num_refused:
                num_tokens = max(forecast.num_to_compute, self._plan.num_to_compute)
                found.append(WhatIf(change, num_tokens, forecast.seconds, forecast.peak_kv_tokens))
        return found

    def shards(self, num_shards: int) -> list[Shard]:
        """The rows of all jobs, job after job, cut where little is shared; each machine as fast as this one."""
        order, outputs = self._plan.order, self._plan.expected_output
        num_new = order.num_new
        cuts = cut_points(order, num_shards, num_new + outputs)
        share = self._found.seconds / max(1.0, float((num_new + outputs).sum()))
        found = []
        for begin, end, weight in zip(cuts.bounds, cuts.bounds[1:], cuts.weights, strict=False):
            num_again = int(min(order.num_shared[begin], order.num_tokens[begin] - 1)) if begin < end else 0
            seconds = share * (weight + num_again)
            found.append(Shard(int(end - begin), int(num_new[begin:end].sum()) + num_again, float(seconds)))
        return found

    def _duration(self) -> Duration:
        seconds, known = self._found.seconds, self._known
        shortest = seconds
        if not self._plan.lengths_are_known:
            rows = self._rows
            short = np.maximum(1, SHORT_SHARE * rows.num_output).astype(np.int64)
            shortest = self._forecast(self._config, self._budget.num_blocks, rows.with_output(short)).seconds
        return Duration(seconds, shortest * (1 - known.uncertainty), seconds * (1 + known.uncertainty))

    def _forecast(self, config: EngineConfig, num_blocks: int, rows: PlannedRows) -> RunForecast:
        num_host = self._budget.num_host_blocks * self._config.block_size // config.block_size
        forecaster = Forecaster(config, self._shape, self._known.speeds, self._kind, num_blocks, num_host)
        return forecaster.forecast(rows)
