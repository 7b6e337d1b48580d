"""A plan as tables for a terminal, readable at 120 columns and without colours."""

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len, set_cell_size
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from batchrunner.forecast.duration import time_text
from batchrunner.preview.figures import Forecast, JobFigures, JobFilePlan, Shard, SharedPrefix, WhatIf, hit_rate
from batchrunner.preview.histogram import Histogram
from batchrunner.preview.wording import change_text

TOP_PREFIXES = 5
PREFIX_CELLS = 68
BAR_CELLS = 30
LEVELS = "▁▂▃▄▅▆▇█"
JOBS_NOTE = (
    "To compute: prompt tokens, with duplicates and shared beginnings once, if memory is enough. Hit rate: the rest of "
    "the distinct prompts. Answer tokens: expected, and the most that they can be."
)
JOB_HEADINGS = (
    "rows",
    "dupli-\ncates",
    "will\nfail",
    "prompt\ntokens",
    "to\ncompute",
    "hit\nrate",
    "answer\ntokens",
    "at\nmost",
)


def describe(plan: JobFilePlan) -> Iterator[RenderableType]:
    """What to print, from top to bottom."""
    yield Group(_jobs_table(plan), Text(JOBS_NOTE))
    for job in plan.jobs:
        yield _job_details(job)
        if job.prefixes:
            yield Padding(_prefix_table(job.prefixes[:TOP_PREFIXES]), (0, 0, 0, 2))
    yield Text(plan.budget_text)
    yield _forecast_lines(plan.forecast)
    if plan.what_if:
        yield _what_if_table(plan.what_if, plan.forecast)
    if plan.shards:
        yield _shard_table(plan.shards)


def _jobs_table(plan: JobFilePlan) -> Table:
    table = _table("job", *JOB_HEADINGS)
    for job in plan.jobs:
        table.add_row(Text(job.name), *_job_cells([job], job.num_tokens_to_compute))
    if len(plan.jobs) > 1:
        table.add_section()
        table.add_row("all", *_job_cells(plan.jobs, plan.forecast.num_tokens_to_compute))
    return table


def _job_cells(jobs: list[JobFigures], num_to_compute: int) -> list[str]:
    """Sums over jobs, in the order of JOB_HEADINGS. num_to_compute: of them together, which share with each other."""
    num_prompt_tokens = sum(job.num_prompt_tokens for job in jobs)
    return [
        f"{sum(job.num_rows for job in jobs):,}",
        f"{sum(job.num_duplicates for job in jobs):,}",
        f"{sum(job.num_will_fail for job in jobs):,}",
        f"{sum(job.num_tokens_given for job in jobs):,}",
        f"{num_to_compute:,}",
        f"{hit_rate(num_to_compute, num_prompt_tokens):.1%}",
        f"{sum(job.num_expected_answer_tokens for job in jobs):,}",
        f"{sum(job.num_answer_tokens for job in jobs):,}",
    ]


def _job_details(job: JobFigures) -> Table:
    """Why rows fail, and how long prompts and answers are."""
    table = _lines(job.name)
    for reason, num_rows in job.why_they_fail.items():
        table.add_row("will fail", f"{num_rows:,} {'row' if num_rows == 1 else 'rows'}: {reason}")
    table.add_row("prompt tokens", histogram_text(job.prompts))
    table.add_row("answer tokens", f"{histogram_text(job.answers)}; lengths: {job.lengths_from}")
    return table


def histogram_text(histogram: Histogram) -> str:
    """One line: a block for each bin between the outermost edges, and where most values are."""
    highest = max(histogram.counts)
    if not highest:
        return "none"
    # Whatever is there is seen: only an empty bin has no block.
    blocks = "".join(
        LEVELS[num_values * (len(LEVELS) - 1) // highest] if num_values else " " for num_values in histogram.counts
    )
    first, last = histogram.edges[0], histogram.edges[-1] - 1
    low, high = histogram.edges[histogram.fullest], histogram.edges[histogram.fullest + 1] - 1
    fullest = f"{low:,} to {high:,}" if low < high else f"{low:,}"
    return f"{first:,} {blocks} {last:,}   most: {fullest} ({highest / sum(histogram.counts):.0%})"


def _prefix_table(prefixes: list[SharedPrefix]) -> Table:
    table = _table("shared beginning, its end", "rows", "tokens", "tokens saved")
    for prefix in prefixes:
        table.add_row(
            Text(_end_of(prefix.text, PREFIX_CELLS)),
            f"{prefix.num_rows:,}",
            f"{prefix.num_tokens:,}",
            f"{prefix.num_saved_tokens:,}",
        )
    return table


def _end_of(text: str, num_cells: int) -> str:
    """Signs of East Asian scripts take two cells."""
    if cell_len(text) <= num_cells:
        return text
    return "…" + set_cell_size(text[::-1], num_cells - 1)[::-1].lstrip()


def _forecast_lines(forecast: Forecast) -> Table:
    table = _lines("the whole run, with this memory")
    num_cells = round(BAR_CELLS * min(1.0, forecast.peak_share))
    bar = "█" * num_cells + "░" * (BAR_CELLS - num_cells)
    table.add_row(
        "KV at its peak",
        f"{bar} {forecast.peak_kv_tokens:,} of {forecast.num_kv_tokens:,} tokens ({forecast.peak_share:.0%}), "
        f"{forecast.num_running:,} at once",
    )
    lost = f"; {forecast.num_tokens_lost:,} of them for balance or want of memory" if forecast.num_tokens_lost else ""
    table.add_row(
        "prompt tokens",
        f"{forecast.num_tokens_to_compute:,} of {forecast.num_prompt_tokens:,} to compute{lost}; "
        f"hit rate {forecast.hit_rate:.1%}",
    )
    table.add_row(
        "work",
        f"{forecast.num_steps:,} steps; arithmetic alone {time_text(forecast.compute_seconds)}, "
        f"memory traffic alone {time_text(forecast.memory_seconds)}",
    )
    table.add_row("duration", Text(f"{forecast.duration}; speeds: {forecast.speeds_from}"))
    return table


def _what_if_table(what_if: list[WhatIf], forecast: Forecast) -> Table:
    table = _table("what if", "to compute", "", "duration", "", "peak KV", "")
    for changed in what_if:
        cells = [f"{changed.num_tokens_to_compute:,}"]
        cells.append(change_text(changed.num_tokens_to_compute, forecast.num_tokens_to_compute))
        cells += ["–", ""]
        if changed.seconds is not None:
            cells[2:] = time_text(changed.seconds), change_text(changed.seconds, forecast.duration.seconds)
        cells += ["–", ""]
        if changed.peak_kv_tokens is not None:
            cells[4:] = (
                f"{changed.peak_kv_tokens:,}",
                change_text(changed.peak_kv_tokens, forecast.peak_kv_tokens),
            )
        table.add_row(Text(changed.change), *cells)
    return table


def _shard_table(shards: list[Shard]) -> Table:
    table = _table("shard", "rows", "to compute", "duration")
    for index, shard in enumerate(shards):
        table.add_row(str(index), f"{shard.num_rows:,}", f"{shard.num_tokens_to_compute:,}", time_text(shard.seconds))
    return table


def _table(first: str, *headings: str) -> Table:
    """The first column holds names, the others numbers."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(first, overflow="fold", min_width=len(first))
    for heading in headings:
        table.add_column(heading, justify="right", overflow="fold")  # no digit is left out
    return table


def _lines(title: str) -> Table:
    """Names and what is said of them, under a title."""
    table = Table(title=Text(title, style="bold"), title_justify="left", box=None, show_header=False, pad_edge=False)
    table.add_column(min_width=len("prompt tokens"))
    table.add_column(overflow="fold")
    return table
