"""A run over time, kept small: what the picture shows."""

from dataclasses import dataclass, field

MAX_POINTS = 2000


@dataclass(slots=True)
class Series:
    """Points of time, evenly spaced in steps: requests that run, share of the pool they hold, hit rate so far."""

    seconds: list[float] = field(default_factory=list)
    num_running: list[int] = field(default_factory=list)
    kv_use: list[float] = field(default_factory=list)
    hit_rate: list[float] = field(default_factory=list)
    _every: int = 1
    _num_steps: int = 0

    def is_due(self) -> bool:
        """Whether add() is to be called for this step; asked once a step."""
        self._num_steps += 1
        return self._num_steps % self._every == 0

    def add(self, seconds: float, num_running: int, kv_use: float, hit_rate: float) -> None:
        if len(self.seconds) == MAX_POINTS:
            for values in (self.seconds, self.num_running, self.kv_use, self.hit_rate):
                del values[::2]
            self._every *= 2
            if self._num_steps % self._every:
                return
        self.seconds.append(seconds)
        self.num_running.append(num_running)
        self.kv_use.append(kv_use)
        self.hit_rate.append(hit_rate)

    def to_dict(self) -> dict[str, list[float]]:
        return {
            "seconds": self.seconds,
            "num_running": list(self.num_running),
            "kv_use": self.kv_use,
            "hit_rate": self.hit_rate,
        }
