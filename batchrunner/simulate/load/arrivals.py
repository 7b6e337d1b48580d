"""When rows come: at their time, and a conversation's next turn when the one before it has been answered."""

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush

from batchrunner.simulate.load.loads import SimRow


class Arrivals:
    """Rows that come at the same time come in order: a list of all their indexes."""

    def __init__(self, rows: Sequence[SimRow], order: Sequence[int]) -> None:
        self.ready_seconds = [row.arrival_seconds for row in rows]  # since when a row has waited, once it is there
        self._position = [0] * len(rows)
        self._followers: dict[int, list[int]] = {}
        self._coming: list[tuple[float, int, int]] = []  # heap of (seconds, position in the order, row)
        for position, row in enumerate(order):
            self._position[row] = position
            before = rows[row].follows
            if before is None:
                self._coming.append((rows[row].arrival_seconds, position, row))
            else:
                self._followers.setdefault(before, []).append(row)
        heapify(self._coming)

    def due(self, seconds: float) -> Iterator[int]:
        """The rows that have come by now; each is given once."""
        while self._coming and self._coming[0][0] <= seconds:
            yield heappop(self._coming)[2]

    @property
    def next_seconds(self) -> float | None:
        """When the next row comes; None: nobody is on the way."""
        return self._coming[0][0] if self._coming else None

    def answered(self, row: int, seconds: float) -> None:
        for follower in self._followers.pop(row, ()):
            self.ready_seconds[follower] = max(self.ready_seconds[follower], seconds)
            heappush(self._coming, (self.ready_seconds[follower], self._position[follower], follower))
