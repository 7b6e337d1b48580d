"""The fields of a row as one JSON object."""

import json
import math
from collections.abc import Sequence
from typing import Any

from batchrunner.data.prompt.templates import shortened
from batchrunner.errors import RowError

SEPARATOR = ", "


def fields_text(values: dict[str, Any], names: Sequence[str]) -> str:
    """A JSON object of these columns in this order.

    NaN is null; what JSON lacks (dates, decimals, infinity) is text, as a template prints it. Raises RowError for a
    column that the row lacks and for bytes.
    """
    return "{" + SEPARATOR.join(name_text(name) + value_text(values, name) for name in names) + "}"


def name_text(name: str) -> str:
    return json.dumps(name, ensure_ascii=False) + ": "


def value_text(values: dict[str, Any], name: str) -> str:
    """The row's value of this column as JSON. Raises RowError."""
    if name not in values:
        raise RowError("missing_column", f"there is no column {name!r}; the row has: {', '.join(values)}")
    value = values[name]
    try:
        return _ENCODER.encode(value)
    except ValueError:  # not finite, somewhere in it
        return _ENCODER.encode(_finite(value))
    except TypeError as error:
        message = f"column {name!r} cannot be written as JSON: {shortened(value)} (leave it out of fields)"
        raise RowError("not_text", message) from error


def _printed(value: Any) -> str:
    if isinstance(value, bytes):
        raise TypeError
    return str(value)


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_printed)


def _finite(value: Any) -> Any:
    """The value with null for NaN and text for infinity, at any depth."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
