"""How long something takes, as people read it: the same in a terminal, on a page and in a log."""

from dataclasses import dataclass

MINUTE, HOUR, DAY = 60, 3600, 86400


@dataclass(frozen=True, slots=True)
class Duration:
    """Seconds: expected, and the range in which they are likely to lie."""

    seconds: float
    low_seconds: float
    high_seconds: float

    def __str__(self) -> str:
        return f"{time_text(self.seconds)} ({time_text(self.low_seconds)} to {time_text(self.high_seconds)})"


def time_text(seconds: float) -> str:
    """Seconds up to two minutes, minutes up to two hours, hours up to two days: 4.2 s, 50 min, 3.5 h, 12 days."""
    if seconds < 2 * MINUTE:
        return _two_digits(seconds, "s")
    if seconds < 2 * HOUR:
        return _two_digits(seconds / MINUTE, "min")
    return _two_digits(seconds / HOUR, "h") if seconds < 2 * DAY else _two_digits(seconds / DAY, "days")


def _two_digits(value: float, unit: str) -> str:
    return f"{value:,.1f} {unit}" if value < 9.95 else f"{value:,.0f} {unit}"
