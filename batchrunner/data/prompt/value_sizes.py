"""How long a text becomes that a template is about to make, found out before it is made.

One call in C can make gigabytes of a few bytes, and nothing can stop it once it runs. So the sandbox asks here first.
The sizes are in characters (or items of a list) and may be too large by a small factor, or too small by one.
"""

import datetime
import numbers
import re
import uuid
from collections.abc import Callable, Collection, Iterable
from typing import Any

from jinja2 import Undefined
from jinja2.exceptions import SecurityError

MAX_INTEGER_BITS = 100_000
TOO_LARGE = 2**62
_SCALARS = (numbers.Number, datetime.date, datetime.time, datetime.timedelta, uuid.UUID, Undefined, type(None))
_PERCENT = re.compile(r"%(?:\([^)]*\))?[#0\- +]*(\d+|\*)?(?:\.(\d+|\*))?[a-zA-Z]")
_BRACES = re.compile(r"\{[^{}]*:[^{}]*?(\d+)?[,_]?(?:\.(\d+))?[a-zA-Z%]?\}")
_NESTED_BRACES = re.compile(r"\{[^{}]*:[^{}]*\{")


def text_size(value: Any, limit: int) -> int:
    """The length of str(value), or something beyond limit. A list that holds itself many times over is no trouble.

    Raises SecurityError for what is no value: a function, a generator.
    """
    if isinstance(value, str | bytes):
        return len(value)
    size = 0
    waiting = [value]
    while waiting and size <= limit:
        value = waiting.pop()
        if isinstance(value, str | bytes):
            size += len(value)
        elif isinstance(value, int):
            size += 1 + value.bit_length() // 3
        elif isinstance(value, _SCALARS):
            size += 20
        elif isinstance(value, Collection):
            size += 16 + 2 * len(value)  # 16 is too much, but a million lists take a second to look at
            waiting += value.items() if isinstance(value, dict) else value
        else:
            raise SecurityError(f"a {type(value).__name__} is no text")
    return size


def binary_size(operator: str, left: Any, right: Any, limit: int) -> int:
    """The length of the text or list that `left operator right` makes; 0 for a number that may be made."""
    if operator == "%":
        return format_size(left, (right,), limit) if isinstance(left, str | bytes) else 0
    if operator == "+":
        return _length(left) + _length(right)
    if operator == "*" and (_length(left) or _length(right)):
        return _times(_length(left) or left, _length(right) or right)
    if operator == "**" and isinstance(right, int | float) and abs(right) > 1000:
        return TOO_LARGE
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * right if operator == "**" else left.bit_length() + right.bit_length()
        return TOO_LARGE if bits > MAX_INTEGER_BITS else 0
    return 0


def format_size(text: str | bytes, values: Iterable[Any], limit: int) -> int:
    """At most the length of `text % values`, which is also at least that of `text.format(values)`."""
    pattern = text if isinstance(text, str) else text.decode("latin-1")
    if _NESTED_BRACES.search(pattern):
        return TOO_LARGE
    found = [*_PERCENT.findall(pattern), *_BRACES.findall(pattern)]
    widths = [digits for pair in found for digits in pair if digits]
    if "*" in widths:
        return TOO_LARGE
    longest = max((text_size(value, limit) for value in values), default=0)
    num_fields = pattern.count("%") + pattern.count("{")
    return len(text) + num_fields * (longest + max(map(int, widths), default=0))


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str | bytes | list | tuple) else 0


def _times(left: Any, right: Any) -> int:
    return int(left * right) if isinstance(left, int) and isinstance(right, int) else 0


def _replaced(text: Any, old: Any, new: Any, *_count: Any, **_named: Any) -> int:
    return int(len(text) + text.count(old) * len(new))


def _padded(text: Any, width: Any = 80, *_fill: Any) -> int:
    return int(width)


def _joined(text: Any, items: Any) -> int:
    return len(text) * len(items) + sum(map(_length, items))


def _indented(text: str, width: int | str = 4, *_options: Any, **_named: Any) -> int:
    return len(text) + (text.count("\n") + 1) * (width if isinstance(width, int) else len(width))


def _few(limit: int) -> Callable[..., int]:
    """For a number that says how much work there is: small or refused."""

    def size(_value: Any, number: Any = 0, *_options: Any, **named: Any) -> int:
        largest = max((n for n in (number, *named.values()) if isinstance(n, int)), default=0)
        return TOO_LARGE if abs(largest) > limit else 0

    return size


# name → the length of its result, from the arguments of the call
METHOD_SIZES: dict[str, Callable[..., int]] = {
    "replace": _replaced,
    "join": _joined,
    "center": _padded,
    "ljust": _padded,
    "rjust": _padded,
    "zfill": _padded,
}
FILTER_SIZES: dict[str, Callable[..., int]] = {
    "replace": _replaced,
    "center": _padded,
    "indent": _indented,
    "batch": _few(100_000),
    "slice": _few(100_000),
    "round": _few(1000),
    "tojson": _few(100),
}
