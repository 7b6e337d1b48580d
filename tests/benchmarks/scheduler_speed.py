"""How long the scheduler's own work takes: 1,024 running requests, and up to a million that wait.

OMP_NUM_THREADS=1 .venv/bin/python -m tests.benchmarks.scheduler_speed
"""

import gc
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.engine.scheduling.schedulers import build, request

NUM_RUNNING = 1024
NUM_STEPS = 200
WAITING = (0, 10_000, 1_000_000)


@dataclass(frozen=True)
class StepTime:
    """Milliseconds, medians over the steps."""

    num_waiting: int
    schedule: float
    update: float
    both: float


def step_time(num_waiting: int) -> StepTime:
    """Of decode steps; the requests stand at different places in their blocks, as they do in a run."""
    scheduler, _ = build(num_blocks=200_000, block_size=16, max_running=NUM_RUNNING, max_batch_tokens=65_536)
    for number in range(NUM_RUNNING + num_waiting):
        prompt = [3 + (number * 7 + position * 13) % 1000 for position in range(24 + number % 16)]
        scheduler.add(request(prompt, 2 * NUM_STEPS))
    gc.collect()
    times: list[tuple[float, float]] = []
    for _ in range(NUM_STEPS + 5):
        started = time.perf_counter()
        schedule = scheduler.schedule()
        scheduled = time.perf_counter()
        sampled = [5] * len(schedule.sampling_requests)
        sampled_at = time.perf_counter()
        scheduler.update(schedule, sampled)
        times.append((scheduled - started, time.perf_counter() - sampled_at))
    decodes = times[5:]

    def median(values: Sequence[float]) -> float:
        return 1000 * statistics.median(values)

    return StepTime(
        num_waiting,
        median([a for a, _ in decodes]),
        median([b for _, b in decodes]),
        median([a + b for a, b in decodes]),
    )


if __name__ == "__main__":
    for count in WAITING:
        found = step_time(count)
        print(
            f"{NUM_RUNNING:,} running, {count:>9,} waiting: schedule {found.schedule:.2f} ms, update "
            f"{found.update:.2f} ms, both {found.both:.2f} ms"
        )
