"""What a step costs: the roofline model (Williams et al., 2009) of one forward pass.

compute = 2 · parameters + 4 · n_head · d_head · n_layer · context, of every token; the output layer of sampled ones
memory  = weights once + KV of every context read + KV of every token written
seconds = max(compute, memory) + transfer + overhead

Compute and memory are taken to overlap wholly within a step; a real step, whose kernels come one after the other, lies
between their maximum and their sum.
"""

from dataclasses import dataclass

from batchrunner.engine.kv.places import Place
from batchrunner.engine.scheduling.schedule import Schedule
from batchrunner.engine.scheduling.step_work import StepWork
from batchrunner.simulate.cost.device import Device
from batchrunner.simulate.cost.least_work import LeastWork
from batchrunner.simulate.cost.model_shape import ModelShape
from batchrunner.simulate.cost.model_work import ModelWork


@dataclass(frozen=True, slots=True)
class StepCost:
    compute_seconds: float
    memory_seconds: float
    transfer_seconds: float
    overhead_seconds: float

    @property
    def seconds(self) -> float:
        return max(self.compute_seconds, self.memory_seconds) + self.transfer_seconds + self.overhead_seconds


@dataclass(slots=True)
class Totals:
    """What all steps together have done."""

    num_steps: int = 0
    num_tokens: int = 0
    num_samples: int = 0
    flops: float = 0.0
    kv_bytes: float = 0.0  # read and written, weights apart
    transfer_seconds: float = 0.0
    seconds: float = 0.0


class Roofline:
    """One model on one device.

    Takes 20 µs for a step of 1,024 decodes, 45 µs if one of them is a chunk, 120 µs if all are (an AMD EPYC).
    """

    def __init__(self, model: ModelShape, device: Device, block_size: int) -> None:
        self.totals = Totals()
        self._device = device
        self._block_size = block_size
        self._model = ModelWork.of(model)
        self._flops = device.flops * device.flops_efficiency
        self._bytes_per_second = device.bytes_per_second * device.bytes_efficiency
        self._move_seconds = {(start, end): self._seconds_of_move(start, end) for start in Place for end in Place}

    def step(self, schedule: Schedule, num_read_tokens: int | None = None) -> StepCost:
        """Cost a step and add it to totals. The scheduling pass before it is not in it.

        num_read_tokens: KV read, where the caller knows that shared prefixes are read once (see num_distinct_tokens);
        by default every request reads its own context.
        """
        work = StepWork.of(schedule)
        num_read = work.num_context if num_read_tokens is None else min(num_read_tokens, work.num_context)
        flops = self._model.num_flops(work)
        kv_bytes = self._model.num_kv_bytes(num_read, work.num_tokens)
        weight_bytes = self._model.num_weight_bytes(work.num_tokens)
        cost = StepCost(
            compute_seconds=flops / self._flops,
            memory_seconds=(weight_bytes + kv_bytes) / self._bytes_per_second,
            transfer_seconds=self._transfer_seconds(schedule) if schedule.moves else 0.0,
            overhead_seconds=self._device.step_overhead_seconds,
        )
        totals = self.totals
        totals.num_steps += 1
        totals.num_tokens += work.num_tokens
        totals.num_samples += work.num_samples
        totals.flops += flops
        totals.kv_bytes += kv_bytes
        totals.transfer_seconds += cost.transfer_seconds
        totals.seconds += cost.seconds
        return cost

    def num_distinct_tokens(self, schedule: Schedule) -> int:
        """Tokens of context in the step with those of shared blocks counted once: what grouped attention reads.

        Too slow for every step of a long run (3 ms for 1,024 requests of 2,000 tokens). Where all running requests are
        scheduled, the blocks they hold times block_size is the same but for the last block of each.
        """
        size = self._block_size
        full = {block for item in schedule.scheduled for block in item.request.block_table[: item.end // size]}
        return len(full) * size + sum(item.end % size for item in schedule.scheduled)

    def block_seconds(self, source: Place, target: Place) -> float:
        """What moving one block takes."""
        return self._move_seconds[source, target]

    def least_seconds(self, work: LeastWork) -> float:
        """The lower bound of work that was not done yet."""
        num_bytes = self._model.num_kv_bytes(work.num_context, work.num_tokens)
        flops = self._model.num_flops(work)
        return self.lower_bound_seconds(Totals(flops=flops, kv_bytes=num_bytes), work.num_steps)

    def lower_bound_seconds(self, totals: Totals, num_steps: int | None = None) -> float:
        """The least time for this work at the device's peaks, all overlapped: max(ΣF / peak, bytes / bandwidth).

        num_steps: how often the weights must be read at least, say the most tokens one request generates; by default
        as often as they were.
        """
        num_reads = totals.num_steps if num_steps is None else num_steps
        num_bytes = totals.kv_bytes + num_reads * self._model.active_weight_bytes
        return max(totals.flops / self._device.flops, num_bytes / self._device.bytes_per_second)

    def _transfer_seconds(self, schedule: Schedule) -> float:
        seconds = self._move_seconds
        return sum([seconds[move.source, move.target] for move in schedule.moves])

    def _seconds_of_move(self, source: Place, target: Place) -> float:
        """Of one block. Between device and disk it goes at the pace of the disk, the slower part of the way."""
        block_bytes = self._block_size * self._model.kv_bytes
        if Place.DISK in (source, target):
            return block_bytes / self._device.disk_bytes_per_second
        if Place.HOST in (source, target):
            return block_bytes / self._device.link_bytes_per_second
        return 2 * block_bytes / self._bytes_per_second  # read and written
