"""What a benchmark found, as types that print and as JSON."""

from dataclasses import asdict, dataclass
from typing import Any

CURVE_HEADINGS = ("requests in a step", "step, ms", "tokens/s", "limit, tokens/s", "share of the limit")
CONTEST_HEADINGS = ("workload", "", "rows/s", "steps", "tokens computed", "ratio")


@dataclass(frozen=True, slots=True)
class Machine:
    date: str
    chip: str
    num_threads: int
    python: str
    versions: dict[str, str]

    def __str__(self) -> str:
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return f"{self.date}; {self.chip}, {self.num_threads} threads; Python {self.python}, {versions}"


@dataclass(frozen=True, slots=True)
class BatchPoint:
    """A decode step of so many requests. limit_seconds: what the model's linear layers take alone."""

    num_requests: int
    step_seconds: float
    limit_seconds: float

    def cells(self) -> tuple[str, ...]:
        """As CURVE_HEADINGS name them."""
        return (
            f"{self.num_requests:,}",
            f"{1000 * self.step_seconds:,.1f}",
            f"{self.tokens_per_second:,.0f}",
            f"{self.limit_per_second:,.0f}",
            f"{self.share_of_limit:.0%}",
        )

    def __str__(self) -> str:
        return f"{self.num_requests} requests: a decode step takes {1000 * self.step_seconds:,.1f} ms"

    @property
    def tokens_per_second(self) -> float:
        return self.num_requests / self.step_seconds

    @property
    def limit_per_second(self) -> float:
        return self.num_requests / self.limit_seconds

    @property
    def share_of_limit(self) -> float:
        return self.limit_seconds / self.step_seconds


@dataclass(frozen=True, slots=True)
class Entrant:
    """One way to run a workload."""

    name: str
    seconds: float
    num_rows: int
    num_steps: int
    num_computed_tokens: int

    @property
    def rows_per_second(self) -> float:
        return self.num_rows / self.seconds


@dataclass(frozen=True, slots=True)
class Contest:
    """The same rows, run in two ways."""

    workload: str
    ours: Entrant
    other: Entrant

    def __str__(self) -> str:
        return (
            f"{self.workload}: {self.ours.name} {self.ours.seconds:,.1f} s, "
            f"{self.other.name} {self.other.seconds:,.1f} s, {self.ratio:.2f}x"
        )

    def cells(self) -> list[tuple[str, ...]]:
        """A line for each entrant, as CONTEST_HEADINGS name them."""
        lines = ((self.workload, self.ours, f"{self.ratio:.2f}x"), ("", self.other, ""))
        return [
            (
                workload,
                entrant.name,
                f"{entrant.rows_per_second:,.2f}",
                f"{entrant.num_steps:,}",
                f"{entrant.num_computed_tokens:,}",
                ratio,
            )
            for workload, entrant, ratio in lines
        ]

    @property
    def ratio(self) -> float:
        """How many times as many rows a second ours is."""
        return self.other.seconds / self.ours.seconds


@dataclass(frozen=True, slots=True)
class BenchResult:
    model: str
    kernels: str
    machine: Machine
    curve: list[BatchPoint]
    contests: list[Contest]

    def to_dict(self) -> dict[str, Any]:
        curve = [
            {
                **asdict(point),
                "tokens_per_second": point.tokens_per_second,
                "limit_per_second": point.limit_per_second,
                "share_of_limit": point.share_of_limit,
            }
            for point in self.curve
        ]
        contests = [{**asdict(contest), "ratio": contest.ratio} for contest in self.contests]
        return {**asdict(self), "curve": curve, "contests": contests}
