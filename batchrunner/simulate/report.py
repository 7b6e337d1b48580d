"""What a simulated run took, and what it did with the machine."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from batchrunner.engine.counters import Counters
from batchrunner.simulate.series import Series

# The report's own num_steps leaves out those that compute nothing; slots are sums over some steps.
_NOT_SHOWN = {"num_steps", "num_held_slots", "num_used_slots"}


@dataclass(slots=True)
class Tally:
    """What the simulator counts while it runs; first_seconds and end_seconds by row, of those that were answered."""

    first_seconds: dict[int, float] = field(default_factory=dict)
    end_seconds: dict[int, float] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    num_steps: int = 0  # that computed something
    num_passes: int = 0
    most_running: int = 0
    most_held_blocks: int = 0
    scheduling_seconds: float = 0.0
    transfer_seconds: float = 0.0
    series: Series = field(default_factory=Series)


@dataclass(frozen=True, slots=True)
class SimReport:
    """Seconds are the simulated machine's.

    waiting: from a row's arrival to its first token; latency: to its end. idle_slot_share: of steps x the most requests
    that ran at once, the part that gave no token. share_of_limit: the least time for the work at the device's peaks
    over the makespan. counters: the scheduler's. refused: rows that can never be answered, by kind of error.
    most_held_blocks: by running requests at once, shared ones counted once. end_seconds: of each answered row.
    """

    num_rows: int
    refused: dict[str, int]
    makespan_seconds: float
    limit_seconds: float
    share_of_limit: float
    rows_per_second: float
    output_tokens_per_second: float
    computed_tokens_per_second: float
    mean_waiting_seconds: float
    p99_waiting_seconds: float
    mean_latency_seconds: float
    p99_latency_seconds: float
    counters: Counters
    num_blocks: int
    num_steps: int
    most_running: int
    most_held_blocks: int
    idle_slot_share: float
    scheduling_share: float
    transfer_share: float
    series: Series
    end_seconds: dict[int, float]

    @classmethod
    def of(
        cls, tally: Tally, counters: Counters, ready_seconds: Sequence[float], limit_seconds: float, num_blocks: int
    ) -> "SimReport":
        makespan = max(tally.end_seconds.values(), default=0.0)
        per_second = 1 / makespan if makespan else 0.0
        waiting = _since(ready_seconds, tally.first_seconds)
        latency = _since(ready_seconds, tally.end_seconds)
        num_slots = tally.num_steps * tally.most_running
        return cls(
            num_rows=len(tally.end_seconds),
            refused=dict(tally.refused),
            makespan_seconds=makespan,
            limit_seconds=limit_seconds,
            share_of_limit=limit_seconds * per_second,
            rows_per_second=len(tally.end_seconds) * per_second,
            output_tokens_per_second=counters.num_output_tokens * per_second,
            computed_tokens_per_second=counters.num_computed_tokens * per_second,
            mean_waiting_seconds=float(waiting.mean()),
            p99_waiting_seconds=float(np.quantile(waiting, 0.99)),
            mean_latency_seconds=float(latency.mean()),
            p99_latency_seconds=float(np.quantile(latency, 0.99)),
            counters=counters,
            num_blocks=num_blocks,
            num_steps=tally.num_steps,
            most_running=tally.most_running,
            most_held_blocks=tally.most_held_blocks,
            idle_slot_share=1 - counters.num_output_tokens / num_slots if num_slots else 0.0,
            scheduling_share=tally.scheduling_seconds * per_second,
            transfer_share=tally.transfer_seconds * per_second,
            series=tally.series,
            end_seconds=tally.end_seconds,
        )

    def to_dict(self) -> dict[str, Any]:
        """All but what there is of every row, and counters that say nothing by themselves."""
        values = asdict(replace(self, end_seconds={}))
        del values["end_seconds"]
        counters = {name: count for name, count in values.pop("counters").items() if name not in _NOT_SHOWN}
        rates = {"hit_rate": self.counters.hit_rate, "block_utilisation": self.counters.block_utilisation}
        return {**counters, **rates, **values, "series": self.series.to_dict()}


def _since(ready_seconds: Sequence[float], seconds: dict[int, float]) -> "np.ndarray[Any, np.dtype[np.float64]]":
    """From each row's arrival; one zero where there is no row."""
    return np.array([when - ready_seconds[row] for row, when in seconds.items()] or [0.0])
