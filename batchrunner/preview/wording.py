"""Figures and foreign text as people read them, the same in a terminal and on a page."""

SHOWN_CHARS = 80
LEAST_SHOWN = 0.0005
MINUTE, HOUR, DAY = 60, 3600, 86400


def time_text(seconds: float) -> str:
    """Seconds up to two minutes, minutes up to two hours, hours up to two days: 4.2 s, 50 min, 3.5 h, 12 days."""
    if seconds < 2 * MINUTE:
        return _two_digits(seconds, "s")
    if seconds < 2 * HOUR:
        return _two_digits(seconds / MINUTE, "min")
    return _two_digits(seconds / HOUR, "h") if seconds < 2 * DAY else _two_digits(seconds / DAY, "days")


def change_text(now: float, before: float) -> str:
    """By how much now differs from before: -23%, +4%, same."""
    if before == 0:
        return "same" if now == 0 else "from none"
    share = now / before - 1
    if abs(share) < LEAST_SHOWN:
        return "same"
    return f"{share:+.0%}" if abs(share) >= 0.0095 else f"{share:+.1%}"


def printable_end(text: str) -> str:
    """The end of a text on one line. A sign that would move the cursor or turn the direction of writing is a dot."""
    shown = text[-SHOWN_CHARS:].replace("\n", "↵")
    shown = "".join(sign if sign.isprintable() else "·" for sign in shown)
    return shown if len(text) <= SHOWN_CHARS else f"…{shown}"


def _two_digits(value: float, unit: str) -> str:
    return f"{value:,.1f} {unit}" if value < 9.95 else f"{value:,.0f} {unit}"
