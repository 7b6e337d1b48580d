"""What a run came to: for the screen, for summary.json, for scripts."""

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from batchrunner.engine.counters import Counters
from batchrunner.errors import EXIT_DONE, EXIT_FAILED_ROWS


@dataclass(slots=True)
class RunCounters(Counters):
    """What the engine did in this run alone, for all jobs together, with which kernels, and how long it took.

    forecast_seconds: how long it would take, as it seemed once a sample of the answers was there; 0: there was none.
    kv_block_bytes: of one KV block, the unit of the num_blocks_… counters.
    """

    seconds: float = 0.0
    forecast_seconds: float = 0.0
    kernels: str = ""
    kv_block_bytes: int = 0

    @property
    def about_memory(self) -> str:
        """What the run did with its KV memory, in one line."""
        parts = []
        if self.num_held_slots:
            parts.append(f"{self.block_utilisation:.1%} of the KV slots in use held a token")
        if self.num_preemptions:
            parts.append(f"{self.num_preemptions:,} preemptions for want of memory")
        if self.num_displacements:
            parts.append(f"{self.num_displacements:,} requests displaced by more urgent ones")
        if self.num_recomputed_tokens:
            parts.append(f"{self.num_recomputed_tokens:,} tokens computed again")
        for place, down, up in (
            ("host", self.num_blocks_to_host, self.num_blocks_from_host),
            ("disk", self.num_blocks_to_disk, self.num_blocks_from_disk),
        ):
            if down or up:
                megabytes = (down + up) * self.kv_block_bytes / 1e6
                parts.append(f"{down:,} blocks moved to {place} and {up:,} back ({megabytes:,.1f} MB)")
        return ", ".join(parts) or "enough"


@dataclass(slots=True)
class JobSummary:
    """The state of one finished job. Token counts are over the answers, whichever run computed them; an answer that
    several equal rows share counts for each of them; num_distinct_requests counts it once."""

    name: str
    output: str
    num_rows: int = 0
    num_answered: int = 0
    num_failed: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    example_errors: dict[str, str] = field(default_factory=dict)
    finish_reasons: dict[str, int] = field(default_factory=dict)
    num_prompt_tokens: int = 0
    num_output_tokens: int = 0
    num_cached_tokens: int = 0
    num_distinct_requests: int = 0
    was_done: bool = False
    run: RunCounters = field(default_factory=RunCounters)

    def count(self, table: pa.Table) -> None:
        """Take in one table of the output."""
        book = table["_batchrun"].combine_chunks()
        self.num_rows += table.num_rows
        failed = pc.is_valid(book.field("error_type"))
        self.num_failed += pc.sum(failed).as_py() or 0
        self.num_answered = self.num_rows - self.num_failed
        self.finish_reasons = _added(self.finish_reasons, book.field("finish_reason"))
        self.errors = _added(self.errors, book.field("error_type").drop_null())
        for error_type, error in zip(
            *(book.field(name).filter(failed).to_pylist() for name in ("error_type", "error")), strict=True
        ):
            self.example_errors.setdefault(error_type, error)
        for name in ("num_prompt_tokens", "num_output_tokens", "num_cached_tokens"):
            setattr(self, name, getattr(self, name) + (pc.sum(book.field(name)).as_py() or 0))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "JobSummary":
        return cls(**{**values, "run": RunCounters(**values["run"])})


@dataclass(frozen=True, slots=True)
class Summary:
    """The result of a whole job file."""

    jobs: tuple[JobSummary, ...]

    @property
    def num_rows(self) -> int:
        return sum(job.num_rows for job in self.jobs)

    @property
    def num_failed(self) -> int:
        return sum(job.num_failed for job in self.jobs)

    @property
    def run(self) -> RunCounters:
        """What the engine did for all jobs together; zeros if all were done already."""
        runs = [job.run for job in self.jobs if not job.was_done]
        return max(runs, key=lambda run: run.seconds, default=RunCounters())

    @property
    def exit_code(self) -> int:
        return EXIT_FAILED_ROWS if self.num_failed else EXIT_DONE

    def to_dict(self) -> dict[str, Any]:
        return {"jobs": [job.to_dict() for job in self.jobs], "run": asdict(self.run), "exit_code": self.exit_code}


def _added(counts: dict[str, int], values: pa.Array) -> dict[str, int]:
    return dict(Counter(counts) + Counter(values.to_pylist()))
