"""The types of JSONL columns: one that holds all values exactly, or else JSON text."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchrunner.data.input import columns as columns_module
from batchrunner.data.input import json_types
from batchrunner.data.input import rows as rows_module
from batchrunner.data.input.columns import JsonColumns, input_tables, json_table
from batchrunner.data.input.rows import Row, read_rows
from batchrunner.errors import DataError
from tests.data.input.input_files import BIG, jsonl


def through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: Sequence[Any], batch_rows: int) -> pa.Table:
    """The column v with these values, read in batches, typed and written to Parquet."""
    monkeypatch.setattr(rows_module, "BATCH_ROWS", batch_rows)
    file = jsonl(tmp_path / "v.jsonl", [{"v": value} for value in values])
    columns = JsonColumns()
    for batch in read_rows(file):
        columns.see(batch)
    tables = list(input_tables([file], columns.schema(), columns.json_names))
    path = tmp_path / "v.parquet"
    pq.write_table(pa.concat_tables(tables), path)
    return pq.read_table(path)


@pytest.mark.parametrize("batch_rows", [1, 2, 100])
@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([None, None, None], pa.null()),
        ([None, None, 1], pa.int64()),
        ([None, None, "x"], pa.string()),
        ([None, None, {"a": 1}], pa.struct([("a", pa.int64())])),
        ([None, None, [0.5]], pa.list_(pa.float64())),
        ([True, None, False], pa.bool_()),
        ([1, -(2**63), 2**63 - 1], pa.int64()),
        ([1, 2, 0.5], pa.float64()),
        ([0.5, None, 2**53], pa.float64()),
        ([[], [], [1]], pa.list_(pa.int64())),
        ([[], None, []], pa.list_(pa.null())),
        ([[None], [1], None], pa.list_(pa.int64())),
        ([[[1]], [[]], [None]], pa.list_(pa.list_(pa.int64()))),
        (["", "é🎉", "null"], pa.string()),
    ],
)
def test_a_column_has_the_type_that_all_its_values_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_rows: int, values: list[Any], kind: pa.DataType
) -> None:
    table = through(tmp_path, monkeypatch, values, batch_rows)
    assert table["v"].to_pylist() == values
    assert str(table.schema.field("v").type).replace("element", "item") == str(kind)


def test_a_null_in_the_first_batch_does_not_fix_the_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert through(tmp_path, monkeypatch, [None] * 10 + [7], 5)["v"].to_pylist() == [None] * 10 + [7]


@pytest.mark.parametrize("batch_rows", [1, 2, 100])
@pytest.mark.parametrize(
    "values",
    [
        [1, "a", None],
        ["a", 1, 0.5],
        [True, 1, None],
        [1, True, None],
        [True, 0.5, None],
        [BIG, 1, 0.5],
        [0.5, 1, BIG],
        [0.5, -BIG, None],
        [2**63, 1, None],
        [1, 1, 2**64],
        [{}, None, {}],
        [{"a": {}}, None, {"a": None}],
        [[{}], [], None],
        ["x", {"a": 1}, [1]],
        [[1], 1, None],
        [[1], ["x"], None],
        [[1, "x"], None, []],
        [{"a": 1}, {"a": "x"}, None],
        [{"a": [1]}, {"a": None}, {"a": ["x"]}],
        ["é", 1, None],
    ],
    ids=repr,
)
def test_what_no_type_holds_exactly_is_kept_as_json_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_rows: int, values: list[Any]
) -> None:
    table = through(tmp_path, monkeypatch, values, batch_rows)
    assert table.schema.field("v").type == pa.string()
    expected = [None if value is None else json.dumps(value, ensure_ascii=False) for value in values]
    assert table["v"].to_pylist() == expected


@pytest.mark.parametrize(
    "values", [[0.5, True], [0.5, False], [[0.5, True]], [{"a": 0.5}, {"a": True}], [{"a": True}, {"a": 0.5}]], ids=repr
)
def test_true_among_floats_stays_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: list[Any]) -> None:
    found = through(tmp_path, monkeypatch, values, 100)["v"].to_pylist()
    assert found == [json.dumps(value) for value in values]


@pytest.mark.parametrize(
    "batch_rows",
    [1, 100],
)
def test_an_empty_object_among_others_stays_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_rows: int
) -> None:
    found = through(tmp_path, monkeypatch, [{"a": 1}, {}], batch_rows)["v"].to_pylist()
    assert found == ['{"a": 1}', "{}"]


@pytest.mark.parametrize(
    "batch_rows",
    [1, 100],
)
@pytest.mark.parametrize("values", [[{"x": BIG}, {"x": 0.5}], [[BIG], [0.5]], [[[0.5]], [[BIG]]]], ids=repr)
def test_large_integers_inside_a_structure_stay_exact_beside_floats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_rows: int, values: list[Any]
) -> None:
    assert through(tmp_path, monkeypatch, values, batch_rows)["v"].to_pylist() == [json.dumps(v) for v in values]


@pytest.mark.parametrize("batch_rows", [1, 100])
def test_objects_that_are_maps_are_kept_as_json_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_rows: int
) -> None:
    monkeypatch.setattr(json_types, "MAX_FIELDS", 5)
    values = [{str(i): i} for i in range(6)]
    assert through(tmp_path, monkeypatch, values, batch_rows)["v"].to_pylist() == [json.dumps(v) for v in values]
    values = values[:5]
    assert pa.types.is_struct(through(tmp_path, monkeypatch, values, batch_rows).schema.field("v").type)


def test_lists_in_lists_without_end_are_kept_as_json_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    value: Any = 1
    for _ in range(200):
        value = [value]
    assert through(tmp_path, monkeypatch, [value, None], 1)["v"].to_pylist() == [json.dumps(value), None]


def test_rows_without_a_common_key_are_refused_before_memory_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns_module, "MAX_COLUMNS", 2)
    with pytest.raises(DataError, match=r"^line 3: over 2 different keys"):
        JsonColumns().see([Row({str(i): 1}, f"line {i + 1}") for i in range(3)])


@pytest.mark.parametrize("batch_rows", [1, 2, 100])
def test_objects_with_different_fields_become_one_struct(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_rows: int
) -> None:
    values = [{"a": 1}, {"b": "x"}, {"a": 2, "c": {"d": [1]}}, {"c": {"e": 0.5}}, None]
    assert through(tmp_path, monkeypatch, values, batch_rows)["v"].to_pylist() == [
        {"a": 1, "b": None, "c": None},
        {"a": None, "b": "x", "c": None},
        {"a": 2, "b": None, "c": {"d": [1], "e": None}},
        {"a": None, "b": None, "c": {"d": None, "e": 0.5}},
        None,
    ]


@pytest.mark.parametrize("batch_rows", [1, 100])
def test_columns_come_in_the_order_in_which_they_were_first_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_rows: int
) -> None:
    monkeypatch.setattr(rows_module, "BATCH_ROWS", batch_rows)
    file = jsonl(tmp_path / "a.jsonl", [{"b": 1}, {"a": "x", "b": 2}, {"c": None, "a": "y"}])
    columns = JsonColumns()
    for batch in read_rows(file):
        columns.see(batch)
    schema = columns.schema()
    assert schema == pa.schema([("b", pa.int64()), ("a", pa.string()), ("c", pa.null())])
    found = [row for table in input_tables([file], schema, columns.json_names) for row in table.to_pylist()]
    assert found == [
        {"b": 1, "a": None, "c": None},
        {"b": 2, "a": "x", "c": None},
        {"b": None, "a": "y", "c": None},
    ]


def test_an_unreadable_line_is_null_in_every_column(tmp_path: Path) -> None:
    file = jsonl(tmp_path / "a.jsonl", b'{"a": 1}\nbroken\n{"a": 2}\n')
    (table,) = input_tables([file], pa.schema([("a", pa.int64())]), frozenset())
    assert table.to_pylist() == [{"a": 1}, {"a": None}, {"a": 2}]


def test_rows_without_any_column_are_still_rows(tmp_path: Path) -> None:
    file = jsonl(tmp_path / "a.jsonl", [{}, {}, {}])
    (table,) = input_tables([file], pa.schema([]), frozenset())
    assert (table.num_rows, table.num_columns) == (3, 0)


def test_a_value_that_does_not_fit_the_type_found_before_is_an_error_with_its_place() -> None:
    with pytest.raises(DataError, match=r"^f, line 1 and after: column 'a' cannot be kept: "):
        json_table([Row({"a": "x"}, "f, line 1")], pa.schema([("a", pa.int64())]), frozenset())
