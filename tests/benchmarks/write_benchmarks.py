"""Run the project's own benchmarks and write docs/benchmarks.md and its picture. Minutes; nothing else may run beside.

python tests/benchmarks/write_benchmarks.py
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from conftest import SMOLLM2  # noqa: E402
from measurements import (  # noqa: E402
    against_transformers,
    int8_against_float32,
    prefix_caching,
    shared_prefix_steps,
)

from batchrunner.bench.bench import run_bench  # noqa: E402
from batchrunner.bench.picture import draw  # noqa: E402
from batchrunner.bench.results import BenchResult  # noqa: E402
from batchrunner.spec import EngineConfig  # noqa: E402

PAGE = """\
# Benchmarks

Written by `make bench`: {machine}. Model: SmolLM2-135M-Instruct, float32 unless said. Computed by: {kernels}.
Machines are noisy, and each figure was measured once; ratios are of runs one after the other in one process. `batchrun
bench jobs.yaml` measures the first two tables for another model on another machine. For other engines see
[Peers](peers.md).

![The batch curve, and the engine's choices](benchmarks.png)

## Batch curve

A decode step of requests that share nothing, 32 prompt tokens each. The limit is what the model's linear layers take
alone, in float32, prepacked, with all logits, in the same process. A step does with less for the last of them where
greedy tokens are found in bfloat16 (see [Architecture](architecture.md)).

| requests in a step | step, ms | tokens/s | limit, tokens/s | share of the limit |
|---:|---:|---:|---:|---:|
{curve}

## What the engine's choices bring

| workload | | rows/s | steps | tokens computed | ratio |
|---|---|---:|---:|---:|---:|
{contests}

{prefix_caching}

{shared_prefix}

{int8}

{transformers}
"""


def page(result: BenchResult) -> str:
    curve = [
        f"| {p.num_requests} | {1000 * p.step_seconds:,.1f} | {p.tokens_per_second:,.0f} | {p.limit_per_second:,.0f} "
        f"| {p.share_of_limit:.0%} |"
        for p in result.curve
    ]
    contests = [
        f"| {workload} | {e.name} | {e.rows_per_second:.2f} | {e.num_steps:,} | {e.num_computed_tokens:,} | {ratio} |"
        for c in result.contests
        for workload, e, ratio in ((c.workload, c.ours, f"{c.ratio:.2f}x"), ("", c.other, ""))
    ]
    return PAGE.format(
        machine=result.machine,
        kernels=result.kernels,
        curve="\n".join(curve),
        contests="\n".join(contests),
        prefix_caching=prefix_caching(SMOLLM2),
        shared_prefix=shared_prefix_steps(SMOLLM2),
        int8=int8_against_float32(SMOLLM2),
        transformers=against_transformers(SMOLLM2),
    )


def main() -> None:
    result = run_bench(SMOLLM2, EngineConfig(), on_progress=print)
    text = page(result)
    draw(result, ROOT / "docs" / "benchmarks.png")
    (ROOT / "docs" / "benchmarks.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
