"""How long simulating a large job takes: 100,000 requests of 32 tokens in and 128 out, 1,024 at once.

python -m tests.benchmarks.simulate_speed [ROWS]
"""

import sys
import time

from batchrunner.simulate.cost.device import Device
from batchrunner.simulate.cost.model_shape import ModelShape
from batchrunner.simulate.load.loads import equal
from batchrunner.simulate.simulator import Simulator
from batchrunner.spec.engine import EngineConfig

NUM_ROWS, NUM_PROMPT, NUM_OUTPUT = 100_000, 32, 128


def simulation_seconds(num_rows: int = NUM_ROWS) -> float:
    """Of this machine, without making the rows."""
    rows = equal(num_rows, NUM_PROMPT, NUM_OUTPUT)
    simulator = Simulator(EngineConfig(max_running=1024), ModelShape.named("llama-3.1-8b"), Device.load("h100-sxm"))
    started = time.perf_counter()
    report = simulator.run(rows)
    seconds = time.perf_counter() - started
    assert report.counters.num_output_tokens == num_rows * NUM_OUTPUT
    return seconds


def main() -> None:
    num_rows = int(sys.argv[1]) if len(sys.argv) > 1 else NUM_ROWS
    seconds = simulation_seconds(num_rows)
    tokens = num_rows * NUM_OUTPUT / seconds
    print(f"{num_rows:,} requests of {NUM_OUTPUT} tokens simulated in {seconds:.1f} s: {tokens:,.0f} tokens/s")


if __name__ == "__main__":
    main()
