"""The result of a benchmark as a picture."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from batchrunner.bench.results import BatchPoint, BenchResult, Contest

_OURS, _OTHER, _LIMIT = "#2a7d4f", "#b9b9b9", "#c8811a"


def draw(result: BenchResult, path: Path) -> None:
    """Write a PNG or SVG, by the name's ending."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    _draw_curve(left, result.curve)
    _draw_contests(right, result.contests)
    figure.suptitle(f"{result.model}\n{result.machine.chip}, {result.machine.date}", fontsize=9)
    figure.savefig(path, dpi=120)


def _draw_curve(axes: Axes, curve: list[BatchPoint]) -> None:
    sizes = [point.num_requests for point in curve]
    axes.plot(sizes, [point.limit_per_second for point in curve], "--", color=_LIMIT, label="linear layers alone")
    axes.plot(sizes, [point.tokens_per_second for point in curve], "o-", color=_OURS, label="decode step")
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("requests in a step")
    axes.set_ylabel("tokens a second")
    axes.legend()
    axes.grid(alpha=0.3)


def _draw_contests(axes: Axes, contests: list[Contest]) -> None:
    for index, contest in enumerate(contests):
        for entrant, height, color in ((contest.ours, index - 0.2, _OURS), (contest.other, index + 0.2, _OTHER)):
            axes.barh(height, entrant.rows_per_second, 0.36, color=color)
            axes.text(0, height, f" {entrant.name}", va="center", fontsize=8)
    axes.set_yticks(range(len(contests)), [f"{c.workload}\n{c.ratio:.2f}x" for c in contests], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("rows a second")
