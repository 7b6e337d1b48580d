"""A guess knows long from short; how long is long depends on the model, and is learnt from answers that ended."""

from math import exp, log

WEIGHT = 0.05  # of the newest answer, once there are 20: the average follows about the last 20


class Calibration:
    """Observed tokens for each guessed one: an exponentially weighted geometric mean, per group.

    Geometric, since twice too long and twice too short must cancel out. A group begins with the mean of all groups,
    counted as one answer, so that the first answer of its own does not decide alone.
    """

    def __init__(self) -> None:
        self._all = _Mean(0.0)
        self._groups: dict[str, _Mean] = {}

    def ratio(self, group: str) -> float:
        return exp(self._groups.get(group, self._all).value)

    def observe(self, group: str, guessed: float, observed: int) -> None:
        """guessed and observed: at least 1 token each."""
        if group not in self._groups:
            self._groups[group] = _Mean(self._all.value)
        newest = log(observed / guessed)
        self._groups[group].add(newest)
        self._all.add(newest)


class _Mean:
    def __init__(self, value: float) -> None:
        self.value = value
        self._count = 1

    def add(self, newest: float) -> None:
        self._count += 1
        self.value += (newest - self.value) * max(WEIGHT, 1 / self._count)
