"""One type for a column whose files have different ones: only where it holds the values of all of them exactly.

null becomes anything; integers, floats and decimals become wider; an integer becomes a float and a coarse time a fine
one, if every value survives it (the cast tells); lists and structs do so within. All else is a contradiction.
"""

import pyarrow as pa
from pyarrow import types

_UNITS = ("s", "ms", "us", "ns")
_SIGNED = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_UNSIGNED = (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
_FLOATS = (pa.float16(), pa.float32(), pa.float64())


def nullable(kind: pa.DataType) -> pa.DataType:
    """The type with every field within it nullable: another file, or an unreadable row, may have none."""
    if types.is_struct(kind):
        return pa.struct([(field.name, nullable(field.type)) for field in kind])
    if types.is_list(kind):
        return pa.list_(nullable(kind.value_type))
    if types.is_large_list(kind):
        return pa.large_list(nullable(kind.value_type))
    if types.is_fixed_size_list(kind):
        return pa.list_(nullable(kind.value_type), kind.list_size)
    if types.is_map(kind):
        return pa.map_(kind.key_type, nullable(kind.item_type), keys_sorted=kind.keys_sorted)
    return kind


def merge_types(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type that holds both, or None. int64 and float64 give float64: the values have yet to be looked at."""
    if left.equals(right) or types.is_null(right):
        return left
    if types.is_null(left):
        return right
    if types.is_dictionary(left) or types.is_dictionary(right):
        return merge_types(*(kind.value_type if types.is_dictionary(kind) else kind for kind in (left, right)))
    if types.is_struct(left) and types.is_struct(right):
        return _merge_structs(left, right)
    if all(types.is_list(kind) or types.is_large_list(kind) for kind in (left, right)):
        item = merge_types(left.value_type, right.value_type)
        make = pa.list_ if types.is_list(left) and types.is_list(right) else pa.large_list
        return None if item is None else make(item)
    return _merge_scalars(left, right)


def _merge_structs(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    merged = {field.name: field.type for field in left}
    for field in right:
        merged[field.name] = merge_types(merged.get(field.name, pa.null()), field.type)
    return None if None in merged.values() else pa.struct(list(merged.items()))


def _merge_scalars(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    pair = {left, right}
    if types.is_integer(left) and types.is_integer(right):
        return _merge_integers(left, right)
    if left in _FLOATS and right in _FLOATS:
        return max(left, right, key=_FLOATS.index)
    if pair & set(_FLOATS) and (types.is_integer(left) or types.is_integer(right)):
        return pa.float64()
    if types.is_decimal(left) and types.is_decimal(right):
        return _merge_decimals(left, right)
    if pair == {pa.string(), pa.large_string()}:
        return pa.large_string()
    if pair == {pa.binary(), pa.large_binary()}:
        return pa.large_binary()
    return _merge_times(left, right)


def _merge_integers(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if (left in _SIGNED) == (right in _SIGNED):
        return max(left, right, key=lambda kind: int(kind.bit_width))
    signed, unsigned = (left, right) if left in _SIGNED else (right, left)
    return next((k for k in _SIGNED if k.bit_width > unsigned.bit_width and k.bit_width >= signed.bit_width), None)


def _merge_decimals(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    scale = max(left.scale, right.scale)
    precision = max(left.precision - left.scale, right.precision - right.scale) + scale
    if precision > 76:
        return None
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


def _merge_times(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if types.is_timestamp(left) and types.is_timestamp(right) and left.tz == right.tz:
        return pa.timestamp(max(left.unit, right.unit, key=_UNITS.index), left.tz)
    if types.is_duration(left) and types.is_duration(right):
        return pa.duration(max(left.unit, right.unit, key=_UNITS.index))
    return None
