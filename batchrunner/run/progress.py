"""Show a run as it goes: live on a terminal, a line per interval elsewhere. All of it goes to stderr."""

import time
from dataclasses import dataclass
from typing import Protocol, Self

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

LINE_SECONDS = 10.0
LIVE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run at one moment. Rates are over the time since the first step."""

    name: str
    num_rows: int
    num_done: int
    num_failed: int
    num_running: int
    seconds: float
    computed_per_second: float
    output_per_second: float
    hit_rate: float
    kv_use: float
    num_preemptions: int
    eta_seconds: float | None


class Progress(Protocol):
    """What a run tells about itself. A context manager; note() may be called at any time."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...

    def note(self, text: str) -> None:
        """A message that stays."""

    def reading(self, name: str, num_rows: int) -> None:
        """So many rows of the job have been read and tokenised."""

    def running(self, snapshot: Snapshot) -> None:
        """Called after every step; shows what is due."""


class LineProgress:
    """For logs: one line per interval, nothing that moves."""

    def __init__(self, console: Console, interval: float = LINE_SECONDS) -> None:
        self._console = console
        self._interval = interval
        self._last = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def note(self, text: str) -> None:
        self._print(text)

    def reading(self, name: str, num_rows: int) -> None:
        if self._is_due():
            self._print(f"{name}: reading, {num_rows:,} rows so far")

    def running(self, snapshot: Snapshot) -> None:
        if self._is_due():
            self._print(describe(snapshot))

    def _is_due(self) -> bool:
        now = time.monotonic()
        if now - self._last < self._interval:
            return False
        self._last = now
        return True

    def _print(self, text: str) -> None:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        self._console.print(f"{stamp} {text}", markup=False, highlight=False, soft_wrap=True)


class LiveProgress:
    """For a terminal: a bar and the figures that tell whether the run is healthy."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._last = 0.0

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.stop()

    def note(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)

    def reading(self, name: str, num_rows: int) -> None:
        if self._is_due():
            self._live.update(Text(f"{name}: reading, {num_rows:,} rows"), refresh=True)

    def running(self, snapshot: Snapshot) -> None:
        if self._is_due():
            self._live.update(_panel(snapshot), refresh=True)

    def _is_due(self) -> bool:
        now = time.monotonic()
        if now - self._last < LIVE_SECONDS:
            return False
        self._last = now
        return True


def choose_progress(console: Console) -> LineProgress | LiveProgress:
    return LiveProgress(console) if console.is_terminal else LineProgress(console)


def describe(snapshot: Snapshot) -> str:
    """One line for a log."""
    failed = f", {snapshot.num_failed:,} failed" if snapshot.num_failed else ""
    preempted = f", {snapshot.num_preemptions:,} preemptions" if snapshot.num_preemptions else ""
    return (
        f"{snapshot.name}: {snapshot.num_done:,}/{snapshot.num_rows:,} rows{failed}, {snapshot.num_running} running, "
        f"{snapshot.computed_per_second:,.0f} tokens/s ({snapshot.output_per_second:,.0f} out), "
        f"hit rate {snapshot.hit_rate:.0%}, KV {snapshot.kv_use:.0%}{preempted}, ETA {_duration(snapshot.eta_seconds)}"
    )


def _panel(snapshot: Snapshot) -> Table:
    grid = Table.grid(padding=(0, 2))
    failed = f", [red]{snapshot.num_failed:,} failed[/]" if snapshot.num_failed else ""
    bar = ProgressBar(total=max(snapshot.num_rows, 1), completed=snapshot.num_done, width=40)
    grid.add_row(f"[bold]{snapshot.name}[/]", bar, f"{snapshot.num_done:,}/{snapshot.num_rows:,} rows{failed}")
    grid.add_row(
        "",
        f"{snapshot.computed_per_second:,.0f} tokens/s ({snapshot.output_per_second:,.0f} out)",
        f"ETA {_duration(snapshot.eta_seconds)}",
    )
    grid.add_row("", f"hit rate {snapshot.hit_rate:.0%}   KV {snapshot.kv_use:.0%}", f"{snapshot.num_running} running")
    return grid


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
