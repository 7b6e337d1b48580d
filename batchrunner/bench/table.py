"""The result of a benchmark as tables for a terminal."""

from rich.table import Table

from batchrunner.bench.results import BenchResult


def tables(result: BenchResult) -> list[Table]:
    curve = Table(title=f"{result.model}\n{result.kernels}\n{result.machine}", title_justify="left")
    for heading in ("requests in a step", "step, ms", "tokens/s", "limit, tokens/s", "share of the limit"):
        curve.add_column(heading, justify="right")
    for point in result.curve:
        curve.add_row(
            f"{point.num_requests:,}",
            f"{1000 * point.step_seconds:,.1f}",
            f"{point.tokens_per_second:,.0f}",
            f"{point.limit_per_second:,.0f}",
            f"{point.share_of_limit:.0%}",
        )
    curve.caption = "The limit: the model's linear layers alone, all logits computed."
    contests = Table()
    contests.add_column("workload")
    contests.add_column("")
    for heading in ("rows/s", "steps", "tokens computed", "ratio"):
        contests.add_column(heading, justify="right")
    for contest in result.contests:
        for entrant, workload, ratio in (
            (contest.ours, contest.workload, f"{contest.ratio:.2f}x"),
            (contest.other, "", ""),
        ):
            contests.add_row(
                workload,
                entrant.name,
                f"{entrant.rows_per_second:,.2f}",
                f"{entrant.num_steps:,}",
                f"{entrant.num_computed_tokens:,}",
                ratio,
            )
    return [curve, contests]
