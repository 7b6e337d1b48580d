"""Several Parquet files: one type for each column that keeps every value exact, or a refusal."""

import datetime
import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchrunner.data.input.columns import input_tables, parquet_schema
from batchrunner.errors import DataError
from tests.data.input.input_files import parquet


def test_the_metadata_of_a_schema_is_left_out(tmp_path: Path) -> None:
    table = pa.table({"a": [1]}).replace_schema_metadata({"pandas": "{}", "huggingface": "{}"})
    assert parquet_schema([parquet(tmp_path / "a.parquet", table)]).metadata is None


@pytest.mark.parametrize(
    ("first", "second", "kind", "values"),
    [
        (pa.nulls(1), pa.array(["x"]), pa.string(), [None, "x"]),
        (pa.array([1], pa.int8()), pa.array([2**40]), pa.int64(), [1, 2**40]),
        (pa.array([1], pa.int8()), pa.array([200], pa.uint8()), pa.int16(), [1, 200]),
        (pa.array([1]), pa.array([0.5]), pa.float64(), [1.0, 0.5]),
        (pa.array(["x"]), pa.array(["y"], pa.large_string()), pa.large_string(), ["x", "y"]),
        (
            pa.array([decimal.Decimal("1.5")], pa.decimal128(5, 1)),
            pa.array([decimal.Decimal("2.25")], pa.decimal128(10, 2)),
            pa.decimal128(10, 2),
            [decimal.Decimal("1.50"), decimal.Decimal("2.25")],
        ),
        (
            pa.array([{"a": 1}]),
            pa.array([{"b": "x"}]),
            pa.struct([("a", pa.int64()), ("b", pa.string())]),
            [{"a": 1, "b": None}, {"a": None, "b": "x"}],
        ),
        (
            pa.array(["x"]).dictionary_encode(),
            pa.array(["y"]).dictionary_encode(),
            pa.dictionary(pa.int32(), pa.string()),
            ["x", "y"],
        ),
    ],
)
def test_files_whose_columns_fit_are_read_with_one_type(
    tmp_path: Path, first: pa.Array, second: pa.Array, kind: pa.DataType, values: list[Any]
) -> None:
    files = [parquet(tmp_path / "a.parquet", {"v": first}), parquet(tmp_path / "b.parquet", {"v": second})]
    schema = parquet_schema(files)
    assert schema == pa.schema([("v", kind)])
    assert pa.concat_tables(input_tables(files, schema, frozenset()))["v"].to_pylist() == values


def test_a_column_that_a_file_lacks_is_null_there(tmp_path: Path) -> None:
    files = [parquet(tmp_path / "a.parquet", {"a": [1]}), parquet(tmp_path / "b.parquet", {"b": ["x"], "a": [2]})]
    schema = parquet_schema(files)
    table = pa.concat_tables(input_tables(files, schema, frozenset()))
    assert table.to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]


@pytest.mark.parametrize("other", [pa.array([1]), pa.array([{"a": 1}]), pa.array([["x"]]), pa.array([True])])
def test_files_that_contradict_each_other_are_refused_by_name(tmp_path: Path, other: pa.Array) -> None:
    files = [parquet(tmp_path / "a.parquet", {"v": ["x"]}), parquet(tmp_path / "b.parquet", {"v": other})]
    with pytest.raises(DataError, match=r"b\.parquet: its columns do not fit those of .*a\.parquet: .*v"):
        parquet_schema(files)


UNFIT = [
    (pa.array([2**60]), pa.array([0.5])),
    (pa.array([0.5]), pa.array([2**60])),
    (pa.array([2**63], pa.uint64()), pa.array([-1])),
    (pa.array([2**60], pa.timestamp("ms")), pa.array([1], pa.timestamp("ns"))),
    (pa.array([decimal.Decimal("123456789012345678.25")], pa.decimal128(38, 2)), pa.array([0.5])),
]


@pytest.mark.parametrize(
    ("first", "second"), UNFIT, ids=["int-float", "float-int", "uint-int", "ms-ns", "decimal-float"]
)
def test_values_that_no_common_type_holds_are_refused_or_kept_exactly(
    tmp_path: Path, first: pa.Array, second: pa.Array
) -> None:
    files = [parquet(tmp_path / "a.parquet", {"v": first}), parquet(tmp_path / "b.parquet", {"v": second})]
    try:
        schema = parquet_schema(files)
        found = pa.concat_tables(input_tables(files, schema, frozenset()))["v"].to_pylist()
    except DataError:
        return
    assert found == first.to_pylist() + second.to_pylist()


@pytest.mark.parametrize(("first", "second"), UNFIT)
def test_a_contradiction_names_both_files_and_the_column(tmp_path: Path, first: pa.Array, second: pa.Array) -> None:
    files = [parquet(tmp_path / "a.parquet", {"v": first}), parquet(tmp_path / "b.parquet", {"v": second})]
    with pytest.raises(DataError, match=r"\.parquet: its columns do not fit those of .*\.parquet: .*'v'") as caught:
        parquet_schema(files)
    assert "a.parquet" in str(caught.value) and "b.parquet" in str(caught.value)


def test_a_contradiction_in_a_column_that_is_not_kept_is_no_trouble(tmp_path: Path) -> None:
    files = [parquet(tmp_path / f"{i}.parquet", {"v": v, "k": [1]}) for i, v in enumerate((["x"], [1], [0.5]))]
    assert parquet_schema(files, ["k"]).field("k").type == pa.int64()


INNER = pa.struct([pa.field("a", pa.list_(pa.field("item", pa.int64(), nullable=False)), nullable=False)])


@pytest.mark.parametrize(
    ("first", "second", "values"),
    [
        (
            pa.array([1], pa.timestamp("s")),
            pa.array([10**6], pa.timestamp("us")),
            [datetime.datetime(1970, 1, 1, 0, 0, 1)],
        ),
        (pa.array([["x"]]), pa.array([["x"]], pa.large_list(pa.large_string())), [["x"]]),
        (pa.array(["x"]).dictionary_encode(), pa.array(["x"]), ["x"]),
        (pa.array([{"a": [1]}]), pa.array([{"a": [1.0]}]), [{"a": [1.0]}]),
        (pa.array([{"a": [1]}], INNER), pa.array([{"a": [1]}]), [{"a": [1]}]),
        (pa.nulls(1), pa.array([{"a": [1]}], INNER), None),
    ],
)
def test_exact_promotions_are_made(tmp_path: Path, first: pa.Array, second: pa.Array, values: list[Any] | None) -> None:
    files = [parquet(tmp_path / "a.parquet", {"v": first}), parquet(tmp_path / "b.parquet", {"v": second})]
    table = pa.concat_tables(input_tables(files, parquet_schema(files), frozenset()))
    pq.write_table(table, tmp_path / "out.parquet")
    assert table["v"].to_pylist() == (values * 2 if values else [None, {"a": [1]}])


def test_a_required_column_that_another_file_lacks_may_be_null(tmp_path: Path) -> None:
    required = pa.table([pa.array([1])], schema=pa.schema([pa.field("a", pa.int64(), nullable=False)]))
    files = [parquet(tmp_path / "a.parquet", required), parquet(tmp_path / "b.parquet", {"b": [2]})]
    table = pa.concat_tables(input_tables(files, parquet_schema(files), frozenset()))
    pq.write_table(table, tmp_path / "out.parquet")
    assert table.to_pylist() == [{"a": 1, "b": None}, {"a": None, "b": 2}]


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    table = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(DataError, match=r"a\.parquet: two columns have the same name"):
        parquet_schema([parquet(tmp_path / "a.parquet", table)])


def test_no_parquet_file_has_no_columns() -> None:
    assert parquet_schema([]) == pa.schema([])
