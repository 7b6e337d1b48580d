"""Numbers that are said of batching and of KV memory, from the scheduler itself: each function gives some of them.

tests/test_scenarios.py holds them against what is said, with the tolerance of each.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from batchrunner.engine.kv.places import Place
from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.predictors.oracle import Oracle
from batchrunner.engine.scheduling.schedule import Schedule
from batchrunner.simulate.cost.device import Device
from batchrunner.simulate.cost.model_shape import ModelShape
from batchrunner.simulate.cost.roofline import Roofline
from batchrunner.simulate.cost.step_costs import FixedSteps
from batchrunner.simulate.load.lengths import Lengths
from batchrunner.simulate.load.loads import SimRow, equal, sharegpt_like, tokens
from batchrunner.simulate.load.named_loads import agent_like
from batchrunner.simulate.report import SimReport
from batchrunner.simulate.simulator import Simulator
from batchrunner.spec.engine import EngineConfig
from batchrunner.spec.sampling import SamplingParams

DECODE_SECONDS, SCHEDULING_SECONDS = 0.015, 0.0005
H100 = Device.load("h100-sxm")
LLAMA_3_1 = ModelShape.named("llama-3.1-8b")


@dataclass(frozen=True, slots=True)
class EveryN:
    """What scheduling before every Nth step brings and costs. overhead: scheduling over decoding."""

    every: int
    predictive_release: bool
    overhead: float
    tokens_per_second: float
    idle_seats: float


@dataclass(frozen=True, slots=True)
class BatchPoint:
    """A decode step of so many requests."""

    size: int
    step_seconds: float
    tokens_per_second: float


@dataclass(frozen=True, slots=True)
class SwapPoint:
    """A preempted request's KV moved one way over the link, against its tokens computed again.

    crossover: the link, in bytes a second, where moving both ways takes as long as computing.
    """

    model: str
    device: str
    kv_bytes: int
    swap_seconds: float
    recompute_seconds: float
    crossover: float

    @property
    def cheaper(self) -> str:
        return "swap" if 2 * self.swap_seconds < self.recompute_seconds else "recompute"


def schedule_every(every: Sequence[int] = (1, 2, 5, 10), num_rows: int = 2000, num_seats: int = 64) -> list[EveryN]:
    """Decode step 15 ms, a scheduling pass 0.5 ms: 3.3 % before every step, 0.67 % before every fifth.

    Rows of 4 to about 500 tokens (log-normal, 64 in the mean), whose lengths the scheduler knows. With predictive
    release those that end before the next pass leave at once.
    """
    rows = [
        SimRow(row.token_ids, 512, length, row.answer_seed)
        for row, length in zip(
            equal(num_rows, 8, 512), Lengths.parse("lognormal:64,0.8").for_rows([512] * num_rows, seed=0), strict=True
        )
    ]
    oracle = Oracle({str(index): row.num_output_tokens for index, row in enumerate(rows)})
    points = []
    for number in every:
        for predictive in (False, True):
            config = EngineConfig(schedule_every=number, predictive_release=predictive, max_running=num_seats)
            report = _fixed(config, DECODE_SECONDS, SCHEDULING_SECONDS).run(rows, oracle)
            overhead = report.makespan_seconds / (report.num_steps * DECODE_SECONDS) - 1
            speed = report.output_tokens_per_second
            points.append(EveryN(number, predictive, overhead, speed, report.idle_slot_share))
    return points


def lateness(every: int, num_tokens: int = 496) -> float:
    """How much later a request ends than with a pass before every step, as a share of its time, scheduling taken to
    cost nothing.

    Worst case: 496 tokens end with a step that begins with a pass (number 495, from 0; passes before every fifth), and
    wait for the end of the fourth step after it. Of 500 tokens the last one is just before a pass. Without predictive
    release, and beside a longer request: where nobody else runs, the pass comes at once.
    """
    rows = _answers(num_tokens, 2 * num_tokens)
    configs = [EngineConfig(schedule_every=number, predictive_release=False) for number in (1, every)]
    ends = [_fixed(config, DECODE_SECONDS).run(rows).end_seconds[0] for config in configs]
    return ends[1] / ends[0] - 1


def ten_requests(batching: str) -> SimReport:
    """Eight requests of 100 tokens, two of 1,000, 10 ms a step whatever the batch.

    Continuous: they end at 1,000 and 10,000 ms. Static: the batch ends at 10,000 ms, the makespan. What has ended is
    given out at once here too; in a batch of padded rows it would come with the others.
    """
    return _ten(batching, _answers(*[100] * 8, *[1000] * 2))


def nine_short_one_long(batching: str, num_batches: int = 1) -> SimReport:
    """Nine requests of 50 tokens and one of 500: (10 · 500 − 950) / (10 · 500) = 81 % of the seats idle if static."""
    return _ten(batching, _answers(*([50] * 9 + [500]) * num_batches))


def sharegpt(batching: str, num_rows: int = 2000, num_seats: int = 256) -> SimReport:
    """Lengths as in ShareGPT, cut at 2,048; Llama 3.1 8B on an H100, 256 seats, memory for all of them.

    Orca (OSDI 2022) and Anyscale ("How continuous batching enables 23x throughput in LLM inference", 2023) report
    continuous batching as 2 to 4 times as fast as static batching; more where the seats are fewer.
    """
    config = EngineConfig(batching=batching, max_running=num_seats)
    return Simulator(config, LLAMA_3_1, H100).run(sharegpt_like(num_rows))


def batch_curve(
    sizes: Sequence[int] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512), num_context: int = 500, model: str = "llama-2-13b"
) -> list[BatchPoint]:
    """Decode steps on an A100 with 500 tokens of context a request: weights are read once for all of them, until KV
    and arithmetic weigh more."""
    costs = Roofline(ModelShape.named(model), Device.load("a100-80g"), block_size=16)
    points = []
    for size in sizes:
        seconds = costs.step(_schedule(size, num_context, 1)).seconds
        points.append(BatchPoint(size, seconds, size / seconds))
    return points


def swap_or_recompute(model: str, device: Device, num_tokens: int = 2000) -> SwapPoint:
    """One request of 2,000 tokens (1 GB of KV for Llama 2 7B): 500 ms to compute again, 20 to 30 ms over PCIe."""
    shape, block_size = ModelShape.named(model), 16
    costs = Roofline(shape, device, block_size)
    kv_bytes = num_tokens * shape.kv_bytes_per_token
    recompute = costs.step(_schedule(1, num_tokens, num_tokens)).seconds
    moved = num_tokens / block_size * costs.block_seconds(Place.HOST, Place.DEVICE)
    return SwapPoint(model, device.name, kv_bytes, moved, recompute, 2 * kv_bytes / recompute)


def crossovers(
    models: Sequence[str] = ("llama-2-7b", "llama-3.1-8b", "qwen2.5-7b", "smollm2-135m"),
    devices: Sequence[str] = ("h100-sxm", "a100-80g", "l4", "cpu"),
    links: Sequence[float] = (0.1e9, 1e9, 25e9, 50e9),
) -> list[SwapPoint]:
    """Every model on every device over every link."""
    machines = [
        replace(Device.load(name), name=f"{name}, {link / 1e9:g} GB/s", link_bytes_per_second=link)
        for name in devices
        for link in links
    ]
    return [swap_or_recompute(model, machine) for model in models for machine in machines]


def agents(num_turns: int = 1000) -> SimReport:
    """Conversations of 50 turns that begin with 3,000 tokens of instructions and tools, which all share, and 1,000 of
    the task, and grow by an answer of 80 tokens and 80 of results a turn: agents send their whole history again and
    again. Llama 3.1 8B on an H100."""
    return Simulator(EngineConfig(), LLAMA_3_1, H100).run(agent_like(num_turns))


def _ten(batching: str, rows: list[SimRow]) -> SimReport:
    """Ten seats, which rows take in their order."""
    return _fixed(EngineConfig(batching=batching, max_running=10, policy="fcfs"), 0.010).run(rows)


def _fixed(config: EngineConfig, step_seconds: float, scheduling_seconds: float = 0.0) -> Simulator:
    device = replace(H100, scheduling_seconds=scheduling_seconds)
    return Simulator(config, LLAMA_3_1, device, FixedSteps(step_seconds))


def _answers(*num_output: int) -> list[SimRow]:
    """Short prompts with answers of these lengths, which the scheduler does not know."""
    return [SimRow(tokens(2 * index + 1, 8), 2048, length, 2 * index + 2) for index, length in enumerate(num_output)]


def _schedule(size: int, num_tokens: int, num_new: int) -> Schedule:
    """The last num_new tokens of each of so many requests of num_tokens."""
    schedule = Schedule()
    for _ in range(size):
        request = Request("", [0] * num_tokens, num_tokens, SamplingParams())
        request.num_computed_tokens = num_tokens - num_new
        schedule.add(request, num_new)
    return schedule
