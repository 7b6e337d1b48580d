"""The Arrow type that holds all JSON values of a column exactly, found as they go by, in any batches."""

from typing import Any

import pyarrow as pa

MAX_EXACT_INTEGER = 2**53  # beyond it, a column that also holds floats would change its integers
MAX_DEPTH = 32
MAX_FIELDS = 1000  # objects with more different keys than this are maps, and a struct of them would grow with the rows


class JsonKind:
    """What was seen at one place: a column, a field of its objects, or the items of its lists."""

    def __init__(self, depth: int = 0) -> None:
        self.largest_integer = 0  # its absolute value
        self.fields: dict[str, JsonKind] = {}
        self._depth = depth
        self._types: set[type] = set()
        self._fits_int64 = True
        self._is_mixed = depth > MAX_DEPTH
        self._item: JsonKind | None = None

    def see(self, value: Any) -> None:
        if value is None or self._is_mixed:
            return
        kind = type(value)
        if kind not in self._types:
            self._types.add(kind)
            self._is_mixed = len(self._types) > 1 and self._types != {int, float}
        if kind is int:
            self.largest_integer = max(self.largest_integer, abs(value))
            self._fits_int64 = self._fits_int64 and -(2**63) <= value < 2**63
        elif kind is list:
            self._item = self._item or JsonKind(self._depth + 1)
            for item in value:
                self._item.see(item)
        elif kind is dict:
            self._see_object(value)

    def _see_object(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            if name not in self.fields:
                self.fields[name] = JsonKind(self._depth + 1)
            self.fields[name].see(value)
            if len(self.fields) > MAX_FIELDS:
                break
        if not values or len(self.fields) > MAX_FIELDS:  # a struct would fill an empty object with nulls
            self._is_mixed = True
            self.fields.clear()

    @property
    def has_large_integer(self) -> bool:
        """Whether a float could not hold an integer that was seen, at any depth."""
        inner = [*self.fields.values(), *([self._item] if self._item else [])]
        return self.largest_integer > MAX_EXACT_INTEGER or any(kind.has_large_integer for kind in inner)

    def arrow_type(self) -> pa.DataType | None:
        """None if no type holds all values exactly."""
        if self._is_mixed:
            return None
        if not self._types:
            return pa.null()
        if self._types == {int, float}:
            return None if self.largest_integer > MAX_EXACT_INTEGER else pa.float64()
        (kind,) = self._types
        if kind is int:
            return pa.int64() if self._fits_int64 else None
        if kind is list:
            item = self._item.arrow_type() if self._item else pa.null()
            return None if item is None else pa.list_(item)
        if kind is dict:
            return self._struct()
        return {bool: pa.bool_(), float: pa.float64(), str: pa.string()}[kind]

    def _struct(self) -> pa.DataType | None:
        types = {name: kind.arrow_type() for name, kind in self.fields.items()}
        return None if None in types.values() else pa.struct(list(types.items()))
