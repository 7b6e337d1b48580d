"""What the parts of a job file are made of."""

import re
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
MAX_INT = 2**63  # whole numbers stay below it: they are kept in 64 bits


def parse_bytes(value: Any) -> Any:
    """Turn "8GiB", "500 MB" or a whole number into bytes; "auto" stays as it is."""
    if isinstance(value, str) and value != "auto":
        match = re.fullmatch(r"\s*([0-9]{1,30}(?:\.[0-9]{1,30})?)\s*((?:[KMGT]I?)?)B?\s*", value.upper())
        if match is None:
            raise ValueError("not a size; write a number of bytes or, for example, 8GiB")
        return int(Fraction(match[1]) * _UNITS[match[2]])
    return value


def empty_means_default(value: Any) -> Any:
    """A section whose key is there without a value is like one that is left out."""
    return {} if value is None else value


class Frozen(BaseModel):
    # A job file's values may come from ${env:…}: no error shows them. Validators must not put them in messages either.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


Auto = Literal["auto"]
PositiveInt = Annotated[int, Field(ge=1, lt=MAX_INT)]


class ColumnRef(Frozen):
    """`{column: NAME}`: the value is taken from this column, row by row."""

    column: str
