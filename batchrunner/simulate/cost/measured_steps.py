"""What a step costs on a machine whose speed with this model was measured.

reading = weights / bytes_per_second
seconds = reading + max(0, flops / flops_per_second - 0.3 · reading) + KV / bytes_per_second + overhead

The weights of a layer are read once a step, and some of the arithmetic is done meanwhile: decode steps of one to four
requests take the same time, and from there on each token adds its own. Fitted to 56 kinds of steps of SmolLM2-135M in
float32 on two cores (1 to 256 tokens, contexts of 32 to 1,600), this is off by 6.9 % in the mean; reading and computing
as the two sides of a right-angled triangle by 11.1 %, and with a third parameter for their overlap by 8.1 %.
"""

import numpy as np
import numpy.typing as npt

from batchrunner.engine.kv.places import Place
from batchrunner.engine.model.speeds import Speeds
from batchrunner.engine.scheduling.schedule import Schedule
from batchrunner.engine.scheduling.step_work import StepWork
from batchrunner.simulate.cost.least_work import LeastWork
from batchrunner.simulate.cost.model_shape import ModelShape
from batchrunner.simulate.cost.model_work import ModelWork
from batchrunner.simulate.cost.roofline import StepCost

HIDDEN_SHARE = 0.3  # of the time of reading the weights: so much arithmetic costs nothing

Numbers = float | npt.NDArray[np.float64]


def forward_seconds(
    flops: Numbers, weight_bytes: Numbers, kv_bytes: Numbers, flops_per_second: Numbers, bytes_per_second: Numbers
) -> Numbers:
    """Of one step, or of many: arrays are broadcast. Without overhead."""
    reading = weight_bytes / bytes_per_second
    computing = np.maximum(flops / flops_per_second - HIDDEN_SHARE * reading, 0.0)
    seconds: Numbers = reading + computing + kv_bytes / bytes_per_second
    return seconds


class MeasuredSteps:
    """One model on a machine of these speeds. A moved block is read and written in memory: links were not measured."""

    def __init__(self, shape: ModelShape, speeds: Speeds, block_size: int) -> None:
        self._model = ModelWork.of(shape)
        self._speeds = speeds
        self._block_seconds = 2 * block_size * self._model.kv_bytes / speeds.bytes_per_second

    def num_seconds(self, work: StepWork, num_read: int) -> float:
        """num_read: tokens whose KV is read, those of a shared prefix once."""
        return self._forward_seconds(work, num_read) + self._speeds.overhead_seconds

    def step(self, schedule: Schedule, num_read_tokens: int | None = None) -> StepCost:
        """As the Roofline's, but that compute_seconds is the whole forward pass, with what it reads."""
        work = StepWork.of(schedule)
        num_read = work.num_context if num_read_tokens is None else min(num_read_tokens, work.num_context)
        return StepCost(
            compute_seconds=self._forward_seconds(work, num_read),
            memory_seconds=0.0,
            transfer_seconds=len(schedule.moves) * self._block_seconds,
            overhead_seconds=self._speeds.overhead_seconds,
        )

    def block_seconds(self, source: Place, target: Place) -> float:
        """What moving one block takes."""
        return self._block_seconds

    def least_seconds(self, work: LeastWork) -> float:
        """All arithmetic, or all reading, if the other cost nothing."""
        num_bytes = work.num_steps * self._model.active_weight_bytes
        num_bytes += self._model.num_kv_bytes(work.num_context, work.num_tokens)
        computing = self._model.num_flops(work) / self._speeds.flops_per_second
        return max(computing, num_bytes / self._speeds.bytes_per_second)

    def _forward_seconds(self, work: StepWork, num_read: int) -> float:
        seconds = forward_seconds(
            self._model.num_flops(work),
            self._model.num_weight_bytes(work.num_tokens),
            self._model.num_kv_bytes(num_read, work.num_tokens),
            self._speeds.flops_per_second,
            self._speeds.bytes_per_second,
        )
        return float(seconds)
