"""Simulated runs over time as a picture: batch size, KV use and hit rate, a line for each run."""

from collections.abc import Mapping
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from batchrunner.simulate.report import SimReport

_STYLES = ("-", (0, (6, 2)), (0, (2, 2)))  # runs that are alike lie on each other


def draw(reports: Mapping[str, SimReport], title: str, path: Path) -> None:
    """reports: by the label in the legend. Write a PNG or SVG, by the name's ending."""
    figure = Figure(figsize=(10, 8), layout="constrained")
    batch, kv_use, hit_rate = figure.subplots(3, 1, sharex=True)
    for index, (label, report) in enumerate(reports.items()):
        series = report.series
        style = {"linewidth": 1, "linestyle": _STYLES[index % len(_STYLES)]}
        batch.plot(series.seconds, series.num_running, label=label, **style)
        kv_use.plot(series.seconds, [100 * share for share in series.kv_use], **style)
        hit_rate.plot(series.seconds, [100 * share for share in series.hit_rate], **style)
    _label(batch, "requests in a step")
    _label(kv_use, "KV blocks held, %")
    _label(hit_rate, "prompt tokens from\nthe cache so far, %")
    for axes in (kv_use, hit_rate):
        axes.set_ylim(0, 105)
    hit_rate.set_xlabel("seconds on the simulated machine")
    batch.legend(fontsize=8)
    figure.suptitle(title, fontsize=9)
    figure.savefig(path, dpi=120)


def _label(axes: Axes, name: str) -> None:
    axes.set_ylabel(name)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
