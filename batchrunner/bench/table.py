"""The result of a benchmark as tables for a terminal."""

from rich.table import Table

from batchrunner.bench.results import CONTEST_HEADINGS, CURVE_HEADINGS, BenchResult


def tables(result: BenchResult) -> list[Table]:
    curve = Table(title=f"{result.model}\n{result.kernels}\n{result.machine}", title_justify="left")
    for heading in CURVE_HEADINGS:
        curve.add_column(heading, justify="right")
    for point in result.curve:
        curve.add_row(*point.cells())
    curve.caption = "The limit: the model's linear layers alone, all logits computed."
    contests = Table()
    for index, heading in enumerate(CONTEST_HEADINGS):
        contests.add_column(heading, justify="left" if index < 2 else "right")
    for contest in result.contests:
        for line in contest.cells():
            contests.add_row(*line)
    return [curve, contests]
