"""How fast this machine computes the model of a run, learnt from the run's own steps and kept for the next one."""

from collections.abc import Iterable
from pathlib import Path

from batchrunner.engine.kv.memory import Budget
from batchrunner.engine.model.step_times import StepTime
from batchrunner.forecast.duration import Duration
from batchrunner.forecast.forecaster import Forecaster
from batchrunner.forecast.kept_speeds import KeptSpeeds
from batchrunner.forecast.known_speeds import UNCERTAINTY_MEASURED, assumed_speeds
from batchrunner.forecast.parts import RunForecast
from batchrunner.forecast.planned_rows import planned_rows
from batchrunner.plan.job_plan import Pace
from batchrunner.plan.run_plan import RunPlan
from batchrunner.simulate.cost.model_shape import ModelShape
from batchrunner.simulate.cost.pace import pace_of
from batchrunner.simulate.cost.speed_fit import fit
from batchrunner.spec.engine import EngineConfig


class RunSpeeds:
    """shape: of the model; None where the sizes of its family are not known: then nothing is learnt or forecast."""

    def __init__(self, shape: ModelShape | None, config: EngineConfig, device_kind: str) -> None:
        self._shape = shape
        self._config = config
        self._device_kind = device_kind
        self._speeds = assumed_speeds(device_kind)  # until something was measured
        if shape is not None:
            self._kept = KeptSpeeds.of(repr(shape), config, device_kind)
            self._speeds = self._kept.speeds or self._speeds

    @classmethod
    def of_model(cls, folder: Path, config: EngineConfig, device_kind: str) -> "RunSpeeds":
        return cls(ModelShape.if_known(folder, config.dtype_on(device_kind)), config, device_kind)

    @property
    def pace(self) -> Pace:
        return pace_of(self._shape, self._speeds, self._device_kind)

    def learn(self, steps: Iterable[StepTime]) -> None:
        if self._shape is not None:
            self._speeds = fit(self._shape, steps, self._speeds)
            self._kept.save(self._speeds)

    def forecast(self, plan: RunPlan, budget: Budget) -> RunForecast | None:
        """Of the whole run."""
        if self._shape is None:
            return None
        kind, num_blocks, num_host_blocks = self._device_kind, budget.num_blocks, budget.num_host_blocks
        forecaster = Forecaster(self._config, self._shape, self._speeds, kind, num_blocks, num_host_blocks)
        return forecaster.forecast(planned_rows(plan))

    @staticmethod
    def duration(found: RunForecast) -> Duration:
        """With the range that measured speeds leave open."""
        low, high = (1 - UNCERTAINTY_MEASURED) * found.seconds, (1 + UNCERTAINTY_MEASURED) * found.seconds
        return Duration(found.seconds, low, high)
