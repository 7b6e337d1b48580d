"""The fields of a row as JSON, and the table of which rows have which values in common."""

import datetime
import decimal
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrunner.data.prompt.field_values import read_fields
from batchrunner.data.prompt.fields import fields_text
from batchrunner.errors import DataError, RowError
from batchrunner.spec.job import JobSpec
from tests.data.input.input_files import jsonl, parquet
from tests.jobs import document, refusal

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5)


def job(inputs: tuple[str, ...], *fields: str) -> JobSpec:
    return JobSpec(name="job", input=inputs, output="o", prompt="{{ fields }}", fields=fields)


# --- the keys of a job ----------------------------------------------------------------------------------------------


def test_fields_are_columns_and_their_order_is_as_given_unless_asked_for() -> None:
    plain = JobSpec.model_validate(document()["jobs"][0])
    assert (plain.fields, plain.field_order) == (None, "given")
    ordered = JobSpec.model_validate(document(fields=["a", "b"], field_order="auto")["jobs"][0])
    assert (ordered.fields, ordered.field_order) == (("a", "b"), "auto")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fields": []}, "jobs[0].fields: the list is empty; name at least one column, or leave fields out"),
        ({"fields": ["a", "b", "a"]}, "jobs[0].fields: fields[0] and fields[2] are the same column; name it once"),
        ({"fields": [f"c{i}" for i in range(256)]}, "jobs[0].fields: 256 columns; name at most 255"),
        (
            {"field_order": "auto"},
            "jobs[0].field_order: 'auto' needs fields: the columns to order; "
            "name them and write {{ fields }} in the prompt",
        ),
        ({"fields": ["a"], "field_order": "best"}, "jobs[0].field_order: 'best' input should be 'given' or 'auto'"),
        ({"fields": [], "field_order": "auto"}, "jobs[0].fields: the list is empty; name at least one column"),
    ],
)
def test_wrong_fields_are_refused_with_the_remedy(changes: dict[str, Any], message: str) -> None:
    lines = refusal(document(**changes)).splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"jobs.yaml: {message}")


# --- text -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (math.nan, "null"),
        ([1.5, {"a": math.nan}, -math.inf], '[1.5, {"a": null}, "-inf"]'),
        (True, "true"),
        (7, "7"),
        ('say "hi"\n', '"say \\"hi\\"\\n"'),
        ("Grüße 你好", '"Grüße 你好"'),
        (datetime.date(2013, 1, 2), '"2013-01-02"'),
        (datetime.datetime(2013, 1, 2, 5, 15), '"2013-01-02 05:15:00"'),
        (datetime.timedelta(minutes=5), '"0:05:00"'),
        (decimal.Decimal("1.50"), '"1.50"'),
        ([datetime.date(2013, 1, 2)], '["2013-01-02"]'),
        ({"a": {"b": 1}}, '{"a": {"b": 1}}'),
    ],
)
def test_a_value_is_json_or_text(value: Any, text: str) -> None:
    assert fields_text({"x": value}, ["x"]) == f'{{"x": {text}}}'


@settings(deadline=None)
@given(st.dictionaries(st.text(), VALUES, min_size=1), st.randoms())
def test_the_text_is_the_object_of_the_columns_in_the_order_asked_for(values: dict[str, Any], rng: Any) -> None:
    names = list(values)
    rng.shuffle(names)
    text = fields_text(values, names)
    assert text == json.dumps({name: values[name] for name in names}, ensure_ascii=False)


def test_a_column_that_the_row_lacks_and_bytes_are_errors_of_the_row() -> None:
    with pytest.raises(RowError, match="there is no column 'b'; the row has: a") as caught:
        fields_text({"a": 1}, ["a", "b"])
    assert caught.value.error_type == "missing_column"
    with pytest.raises(RowError, match=r"column 'a' cannot be written as JSON: \[b'x'\]") as caught:
        fields_text({"a": [b"x"]}, ["a"])
    assert caught.value.error_type == "not_text"


# --- codes ----------------------------------------------------------------------------------------------------------


def test_codes_tell_which_rows_have_equal_values_and_how_long_they_read(tmp_path: Path) -> None:
    first = parquet(tmp_path / "1.parquet", {"a": ["x", "y", "x"], "b": [1, 1, 2], "other": [0, 0, 0]})
    second = jsonl(tmp_path / "2.jsonl", [{"b": 1, "a": "x"}, {"b": None, "a": "z"}])
    found = read_fields(job((str(first.path), str(second.path)), "b", "a"))
    assert found.codes.tolist() == [[0, 0], [0, 1], [1, 0], [0, 0], [2, 2]]
    assert found.codes.dtype == np.int32
    assert [lengths.tolist() for lengths in found.lengths] == [
        [len('"b": 1, '), len('"b": 2, '), len('"b": null, ')],
        [len('"a": "x", ')] * 3,
    ]
    assert found.name_lengths.tolist() == [5, 5]


def test_values_are_equal_where_they_read_the_same(tmp_path: Path) -> None:
    file = jsonl(tmp_path / "1.jsonl", [{"a": 1}, {"a": 1.0}, {"a": True}, {"a": "1"}, {"a": [1]}, {"a": 1}])
    assert read_fields(job((str(file.path),), "a")).codes[:, 0].tolist() == [0, 1, 2, 3, 4, 0]


def test_thousands_of_values_are_told_apart(tmp_path: Path) -> None:
    file = parquet(tmp_path / "1.parquet", {"a": list(range(5000))})
    assert read_fields(job((str(file.path),), "a")).codes[:, 0].tolist() == list(range(5000))


def test_a_row_that_cannot_be_asked_has_nothing_in_common_with_any_other(tmp_path: Path) -> None:
    lines = [b'{"a": 1, "b": 2}', b"{", b'{"a": 1}', b"[]", b'{"a": 1, "b": 2}']
    file = jsonl(tmp_path / "1.jsonl", b"\n".join(lines))
    found = read_fields(job((str(file.path),), "a", "b"))
    assert found.codes.tolist() == [[0, 0], [1, 1], [2, 2], [3, 3], [0, 0]]
    assert found.lengths[0].tolist() == [len('"a": 1, '), 0, 0, 0]


def test_a_table_without_rows_has_no_codes(tmp_path: Path) -> None:
    table = pa.table({"a": pa.array([], pa.string()), "b": pa.array([], pa.string())})
    found = read_fields(job((str(parquet(tmp_path / "1.parquet", table).path),), "a", "b"))
    assert found.codes.shape == (0, 2)
    assert [lengths.size for lengths in found.lengths] == [0, 0]


def test_input_that_is_not_there_is_an_error_of_the_job(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        read_fields(job((str(tmp_path / "none.jsonl"),), "a"))
