"""From measured steps to the speeds that explain them best.

The fit makes the smallest sum of |log(predicted / measured)| over the steps, each weighted by the seconds it should
take: a median, which a minority of steps that waited for a busy machine does not move. What the steps do not tell stays
as it was known before: small penalties hold the ratio of the two speeds, then their size, and then an overhead of none.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from batchrunner.engine.model.speeds import Speeds
from batchrunner.engine.model.step_times import StepTime
from batchrunner.simulate.cost.measured_steps import forward_seconds
from batchrunner.simulate.cost.model_shape import ModelShape
from batchrunner.simulate.cost.model_work import ModelWork

# In units of the mean |log(predicted / measured)|. Steps that are all alike change it by less than RATIO_PENALTY for
# each unit of the ratio's logarithm; steps of both kinds by more.
RATIO_PENALTY = 0.02
SCALE_PENALTY = 0.02
OVERHEAD_PENALTY = 0.1

_NUM_POINTS = 9  # along each of the three axes of a grid
_SHRINKING = 0.4  # from one grid to the next, finer one: it reaches beyond the neighbours of the best point
_PRECISION = 0.01  # of a logarithm

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Steps:
    """[N] each."""

    flops: Floats
    weight_bytes: Floats
    kv_bytes: Floats
    seconds: Floats

    @classmethod
    def of(cls, shape: ModelShape, steps: Sequence[StepTime]) -> Self:
        model = ModelWork.of(shape)
        return cls(
            flops=np.array([model.num_flops(step.work) for step in steps], float),
            weight_bytes=np.array([model.num_weight_bytes(step.work.num_tokens) for step in steps], float),
            kv_bytes=np.array([model.num_kv_bytes(step.num_read, step.work.num_tokens) for step in steps], float),
            seconds=np.array([step.seconds for step in steps], float),
        )

    def forward(self, flops_per_second: Floats | float, bytes_per_second: Floats | float) -> Floats:
        return np.asarray(
            forward_seconds(self.flops, self.weight_bytes, self.kv_bytes, flops_per_second, bytes_per_second)
        )


@dataclass(frozen=True, slots=True)
class _Candidates:
    """[G] each: logarithms of size and ratio of the speeds, by those known before, and seconds of overhead."""

    scale: Floats
    ratio: Floats
    overhead: Floats

    def flops_per_second(self, prior: Speeds) -> Floats:
        return np.asarray(prior.flops_per_second * np.exp(self.scale + self.ratio / 2))

    def bytes_per_second(self, prior: Speeds) -> Floats:
        return np.asarray(prior.bytes_per_second * np.exp(self.scale - self.ratio / 2))

    def speeds(self, index: int, prior: Speeds) -> Speeds:
        return Speeds(
            float(self.flops_per_second(prior)[index]),
            float(self.bytes_per_second(prior)[index]),
            float(self.overhead[index]),
        )


def fit(shape: ModelShape, steps: Iterable[StepTime], prior: Speeds) -> Speeds:
    """prior: what is known without the steps; without any it is the answer. 0.1 s for 512 steps."""
    measured = [step for step in steps if step.seconds > 0]
    if not measured:
        return prior
    data = _Steps.of(shape, measured)
    expected = data.forward(prior.flops_per_second, prior.bytes_per_second)
    off = np.log(expected / data.seconds)  # how many times as fast as expected each step was
    shortest = float(data.seconds.min())
    center = np.array([off.min() + off.max(), 0.0, 0.0]) / 2
    center[2] = min(prior.overhead_seconds, shortest)
    reach = np.array([np.ptp(off) / 2 + 1, np.ptp(off) + 2, shortest])
    while True:
        tried = _around(center, reach, shortest)
        loss = _mean_error(data, tried, prior, weights=expected / expected.sum())
        loss += RATIO_PENALTY * np.abs(tried.ratio) + SCALE_PENALTY * np.abs(tried.scale)
        loss += OVERHEAD_PENALTY * np.abs(tried.overhead - min(prior.overhead_seconds, shortest)) / shortest
        best = int(loss.argmin())
        if reach[1] < _PRECISION:
            return tried.speeds(best, prior)
        center = np.array([tried.scale[best], tried.ratio[best], tried.overhead[best]])
        reach *= _SHRINKING


def _around(center: Floats, reach: Floats, most_overhead: float) -> _Candidates:
    """A grid whose middle is center."""
    axes = np.linspace(center - reach, center + reach, _NUM_POINTS).T
    axes[2] = np.clip(axes[2], 0.0, most_overhead)
    return _Candidates(*(axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")))


def _mean_error(data: _Steps, tried: _Candidates, prior: Speeds, weights: Floats) -> Floats:
    """[G]"""
    forward = data.forward(tried.flops_per_second(prior)[:, None], tried.bytes_per_second(prior)[:, None])
    errors = np.abs(np.log((forward + tried.overhead[:, None]) / data.seconds))
    return np.asarray(errors @ weights)
