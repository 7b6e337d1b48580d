"""Simulated runs as a table for a terminal."""

from collections.abc import Mapping

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from batchrunner.simulate.report import SimReport

HEADINGS = (
    "makespan s",
    "tokens/s",
    "mean wait s",
    "p99 wait s",
    "hits",
    "preempted",
    "limit",
)


def table(reports: Mapping[str, SimReport], title: str) -> Table:
    """reports: by label, KEY=VALUE, KEY=VALUE and so on, the keys being the same for all."""
    made = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD)
    made.show_edge = made.pad_edge = False
    made.padding = (0, 1, 0, 0)  # so that it fits 80 columns
    made.add_column(Text(_parts(next(iter(reports)), 0)), overflow="fold", min_width=10)
    for heading in HEADINGS:
        made.add_column(heading, justify="right", min_width=max(map(len, heading.split())))
    for label, report in reports.items():
        made.add_row(Text(_parts(label, 1)), *cells(report))
    made.caption = (
        "Tokens of the answers. Waits are for the first one. Hits: prompt tokens from the cache. Preempted: for want "
        "of memory + by more urgent ones. Limit: the work at the device's peaks, shared prefixes computed once."
    )
    return made


def _parts(label: str, index: int) -> str:
    """Its keys (0) or values (1). As Text they are no markup, whatever they look like."""
    return ", ".join(option.partition("=")[::2][index] for option in label.split(", "))


def cells(report: SimReport) -> list[str]:
    """In the order of HEADINGS."""
    counters = report.counters
    return [
        f"{report.makespan_seconds:,.2f}",
        f"{report.output_tokens_per_second:,.0f}",
        f"{report.mean_waiting_seconds:,.2f}",
        f"{report.p99_waiting_seconds:,.2f}",
        f"{counters.hit_rate:.1%}",
        f"{counters.num_preemptions:,}" + (f" + {counters.num_displacements:,}" if counters.num_displacements else ""),
        f"{report.share_of_limit:.0%}",
    ]
