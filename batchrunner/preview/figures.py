"""What a plan found out, as figures: of each job, of the whole run, and of what would change it.

Tokens and rows are counts, times are seconds. Everything can be written as JSON (JobFilePlan.to_dict).
"""

from dataclasses import asdict, dataclass
from typing import Any

from batchrunner.forecast.duration import Duration
from batchrunner.preview.histogram import Histogram
from batchrunner.preview.wording import printable_end

TOO_LONG = "the prompt leaves no room in the model's context"
TOO_LARGE = "the whole KV pool does not hold prompt and answer"


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """A beginning of num_tokens tokens that the prompts of num_rows rows share.

    num_saved_tokens: not computed again because of it. text: its end, for people; all beginnings begin alike.
    """

    num_rows: int
    num_tokens: int
    num_saved_tokens: int
    text: str

    @classmethod
    def of(cls, num_rows: int, num_tokens: int, num_saved_tokens: int, text: str) -> "SharedPrefix":
        """text: all of it; its end is kept, on one line and without control characters."""
        return cls(num_rows, num_tokens, num_saved_tokens, printable_end(text))


@dataclass(frozen=True, slots=True)
class JobFigures:
    """One job of the file, as if it ran alone and memory were enough.

    num_failed: rows that cannot be asked, by type in errors. num_too_long and num_too_large: rows that can be asked but
    will fail, their prompts filling the model's context, or with their answers the whole KV pool.
    num_requests: distinct ones, each computed once; num_duplicates: rows that ask what an earlier one asks.
    num_tokens_given: of the prompts of all rows that can be asked; num_prompt_tokens: of the distinct requests;
    num_tokens_to_compute: of these, without beginnings that were computed before.
    num_answer_tokens: the most that the answers can have; num_expected_answer_tokens: by what lengths_from names.
    prompts and answers: tokens of each distinct request, and of its expected answer. prefixes: most saved first.
    """

    name: str
    num_rows: int
    num_failed: int
    errors: dict[str, int]
    num_requests: int
    num_duplicates: int
    num_prompt_tokens: int
    num_answer_tokens: int
    num_expected_answer_tokens: int
    lengths_from: str
    num_too_long: int
    num_too_large: int
    num_tokens_to_compute: int
    num_tokens_given: int
    prompts: Histogram
    answers: Histogram
    prefixes: list[SharedPrefix]

    @property
    def num_will_fail(self) -> int:
        return self.num_failed + self.num_too_long + self.num_too_large

    @property
    def why_they_fail(self) -> dict[str, int]:
        """Rows by reason, which is an error type or a sentence."""
        later = {TOO_LONG: self.num_too_long, TOO_LARGE: self.num_too_large}
        return self.errors | {reason: num_rows for reason, num_rows in later.items() if num_rows}

    @property
    def hit_rate(self) -> float:
        """Of the tokens of distinct prompts, those found in the prefix cache, with memory enough."""
        return hit_rate(self.num_tokens_to_compute, self.num_prompt_tokens)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "num_will_fail": self.num_will_fail, "hit_rate": self.hit_rate}


@dataclass(frozen=True, slots=True)
class Forecast:
    """The run of all jobs together, with the memory there is.

    compute_seconds and memory_seconds: what the arithmetic alone and the memory traffic alone would take.
    num_prompt_tokens: of distinct requests; num_tokens_to_compute: of these, not found in the prefix cache;
    num_tokens_lost: of those, computed only because balance or a lack of memory kept them from being shared.
    peak_kv_tokens: most held at once, of num_kv_tokens in the pool. num_running: most requests at once.
    speeds_from: what the seconds rest on.
    """

    duration: Duration
    compute_seconds: float
    memory_seconds: float
    num_steps: int
    num_prompt_tokens: int
    num_tokens_to_compute: int
    num_tokens_lost: int
    peak_kv_tokens: int
    num_kv_tokens: int
    num_running: int
    speeds_from: str

    @property
    def hit_rate(self) -> float:
        """Of the tokens of distinct prompts, those found in the prefix cache."""
        return hit_rate(self.num_tokens_to_compute, self.num_prompt_tokens)

    @property
    def peak_share(self) -> float:
        """Of the pool, when it is fullest."""
        return self.peak_kv_tokens / self.num_kv_tokens if self.num_kv_tokens else 0.0

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "hit_rate": self.hit_rate, "peak_share": self.peak_share}


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The same run with one thing changed. change: an option with its value, or words. None: not worked out."""

    change: str
    num_tokens_to_compute: int
    seconds: float | None
    peak_kv_tokens: int | None


@dataclass(frozen=True, slots=True)
class Shard:
    """What one of several machines gets of the rows."""

    num_rows: int
    num_tokens_to_compute: int
    seconds: float


@dataclass(frozen=True, slots=True)
class JobFilePlan:
    """A whole job file. budget: bytes and blocks by name; budget_text: the same in one line.

    shards: none unless asked for.
    """

    jobs: list[JobFigures]
    device: str
    budget: dict[str, int]
    budget_text: str
    forecast: Forecast
    what_if: list[WhatIf]
    shards: list[Shard]

    @property
    def hit_rate(self) -> float:
        """Of the tokens of distinct prompts, those found in the prefix cache, with the memory there is."""
        return self.forecast.hit_rate

    def to_dict(self) -> dict[str, Any]:
        jobs = [job.to_dict() for job in self.jobs]
        return {**asdict(self), "jobs": jobs, "forecast": self.forecast.to_dict(), "hit_rate": self.hit_rate}


def hit_rate(num_tokens_to_compute: int, num_prompt_tokens: int) -> float:
    """Of the tokens of distinct prompts, those found in the prefix cache; of none, none."""
    return 1 - num_tokens_to_compute / num_prompt_tokens if num_prompt_tokens else 0.0
