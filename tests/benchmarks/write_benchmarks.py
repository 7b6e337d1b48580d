"""Run the project's own benchmarks and write docs/benchmarks.md and its picture. Minutes; nothing else may run beside.

python -m tests.benchmarks.write_benchmarks
"""

from collections.abc import Sequence

from batchrunner.bench.bench import run_bench
from batchrunner.bench.picture import draw
from batchrunner.bench.results import CONTEST_HEADINGS, CURVE_HEADINGS, BenchResult
from batchrunner.spec.engine import EngineConfig
from tests import ROOT
from tests.benchmarks.measurements import (
    against_transformers,
    int8_against_float32,
    prefix_caching,
    shared_prefix_steps,
)
from tests.models import SMOLLM2

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

{curve_headings}
|---:|---:|---:|---:|---:|
{curve}

## What the engine's choices bring

{contest_headings}
|---|---|---:|---:|---:|---:|
{contests}

{prefix_caching}

{shared_prefix}

{int8}

{transformers}
"""


PLANNING = "## Planning"


def markdown_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def page(result: BenchResult) -> str:
    return PAGE.format(
        machine=result.machine,
        kernels=result.kernels,
        curve_headings=markdown_line(CURVE_HEADINGS),
        contest_headings=markdown_line(CONTEST_HEADINGS),
        curve="\n".join(markdown_line(point.cells()) for point in result.curve),
        contests="\n".join(markdown_line(line) for contest in result.contests for line in contest.cells()),
        prefix_caching=prefix_caching(SMOLLM2),
        shared_prefix=shared_prefix_steps(SMOLLM2),
        int8=int8_against_float32(SMOLLM2),
        transformers=against_transformers(SMOLLM2),
    )


def main() -> None:
    result = run_bench(SMOLLM2, EngineConfig(), num_rows=64, max_batch=256, on_progress=print)
    text = page(result)
    draw(result, ROOT / "docs" / "benchmarks.png")
    target = ROOT / "docs" / "benchmarks.md"
    # Planning is measured with files that are not here: the tables are those of plan_command.py and forecast.py.
    kept = target.read_text(encoding="utf-8").partition(PLANNING)
    target.write_text(text + "\n" + kept[1] + kept[2], encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
