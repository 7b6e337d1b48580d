"""Changes and foreign text as people read them, the same in a terminal and on a page."""

SHOWN_CHARS = 80
LEAST_SHOWN = 0.0005


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
