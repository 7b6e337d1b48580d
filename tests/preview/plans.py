"""Plans made by hand."""

from dataclasses import replace

import numpy as np

from batchrunner.forecast.duration import Duration
from batchrunner.preview.figures import Forecast, JobFigures, JobFilePlan, Shard, SharedPrefix, WhatIf
from batchrunner.preview.histogram import Histogram

# Foreign text: markup of a page and of rich, a terminal's escape, a newline, a turn of the writing direction.
FOREIGN = "<script>alert(1)</script> & [bold]\x1b[31m\n\u202eReview:"


def job_figures(name: str = "reviews", scale: int = 1) -> JobFigures:
    """A job of 240 rows times scale: 12 will fail, 20 are duplicates."""
    return JobFigures(
        name=name,
        num_rows=240 * scale,
        num_failed=8,
        errors={"null_value": 7, "template_error": 1},
        num_requests=212 * scale,
        num_duplicates=20 * scale,
        num_prompt_tokens=28_000 * scale,
        num_answer_tokens=27_136 * scale,
        num_expected_answer_tokens=8_000 * scale,
        lengths_from="history of 512 answers",
        num_too_long=3,
        num_too_large=1,
        num_tokens_to_compute=7_000 * scale,
        num_tokens_given=31_000 * scale,
        prompts=Histogram([100, 150, 200, 250], [10 * scale, 0, 30 * scale]),
        answers=Histogram([128, 129], [212 * scale]),
        prefixes=[
            SharedPrefix.of((240 - index) * scale, 90 - index, (15_000 - index) * scale, f"beginning {index} {FOREIGN}")
            for index in range(7)
        ],
    )


def plan_by_hand(num_jobs: int = 1, scale: int = 1) -> JobFilePlan:
    jobs = [job_figures(f"job-{index}", scale) for index in range(num_jobs)]
    return JobFilePlan(
        jobs=jobs,
        device="cpu",
        budget={"num_blocks": 4_096, "block_size": 16},
        budget_text="memory: weights 138 MiB, activations about 20 MiB, KV 1.4 GiB = 4,096 blocks of 16",
        forecast=Forecast(
            duration=Duration(8.8, 6.5, 13),
            compute_seconds=7.9,
            memory_seconds=3.1,
            num_steps=412,
            num_prompt_tokens=28_000 * scale * num_jobs,
            num_tokens_to_compute=8_000 * scale * num_jobs,
            num_tokens_lost=1_000 * scale * num_jobs,
            peak_kv_tokens=49_152,
            num_kv_tokens=65_536,
            num_running=256,
            speeds_from="a quick probe of this machine",
        ),
        what_if=[
            WhatIf("engine.block_size: 8", 7_200 * scale * num_jobs, 8.36, 49_152),
            WhatIf("field_order: <script> [bold]", 4_000 * scale * num_jobs, None, None),
        ],
        shards=[Shard(120 * scale, 4_100 * scale, 4.5), Shard(112 * scale, 4_050 * scale, 4.4)],
    )


def empty_plan() -> JobFilePlan:
    """Of a job without rows, that asks for nothing and takes no time."""
    plan = plan_by_hand()
    nothing = Histogram.of(np.zeros(0, np.int64))
    job = JobFigures("empty", 0, 0, {}, 0, 0, 0, 0, 0, "max_tokens", 0, 0, 0, 0, nothing, nothing, [])
    forecast = Forecast(Duration(0, 0, 0), 0, 0, 0, 0, 0, 0, 0, 0, 0, "a quick probe of this machine")
    return replace(plan, jobs=[job], forecast=forecast, what_if=[], shards=[])
