"""`fields:`, the columns that a template prints as one object, in the job's order or in the row's own."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrunner.data.input.input_columns import ColumnFinder
from batchrunner.data.prompt.fields import fields_text
from batchrunner.data.prompt.prompts import compile_templates
from batchrunner.data.spool.spool import prepare_spool
from batchrunner.errors import DataError, JobFileError, RowError
from batchrunner.spec.job import JobSpec
from tests.data.prompt.prompts import builder
from tests.data.spools import LetterEncoder, errors_of, ignore, job_over, spool_of, texts_of

FIELDS = ["b", "a", "c"]
VALUES: dict[str, Any] = {"a": 1, "b": "x", "c": [None], "d": 4}


def test_the_fields_are_printed_in_the_order_of_the_job() -> None:
    found = builder(prompt="About {{ fields }}:", fields=FIELDS).build(VALUES)
    assert found.text == f"About {fields_text(VALUES, FIELDS)}:"
    assert list(json.loads(found.text[6:-1])) == FIELDS


@given(st.permutations(range(3)))
def test_a_row_may_have_an_order_of_its_own(order: list[int]) -> None:
    messages = [{"role": "system", "content": "a is {{ a }}"}, {"role": "user", "content": "{{ fields }}"}]
    found = builder(messages=messages, fields=FIELDS).build(VALUES, order)
    assert found.text == f"system: a is 1\nuser: {fields_text(VALUES, [FIELDS[index] for index in order])}\n"


def test_without_fields_the_name_is_a_column_like_any_other() -> None:
    found = builder(prompt="{{ fields }}")
    assert found.build({"fields": "x"}).text == "x"
    assert found.columns == ["fields"]


def test_with_fields_a_column_of_that_name_is_hidden_and_may_be_one_of_them() -> None:
    found = builder(prompt="{{ fields }}", fields=["fields"])
    assert found.build({"fields": "x"}).text == '{"fields": "x"}'
    assert found.columns == ["fields"]


def test_a_row_that_lacks_a_field_is_told_which() -> None:
    with pytest.raises(RowError, match="there is no column 'c'") as caught:
        builder(prompt="{{ fields }}", fields=FIELDS).build({"a": 1, "b": 2})
    assert caught.value.error_type == "missing_column"


@pytest.mark.parametrize(
    ("prompt", "columns"), [("{{ fields }}", ["a", "b", "c"]), ("{{ d }} {{ fields }}", ["a", "b", "c", "d"])]
)
def test_the_fields_are_columns_that_the_job_needs(prompt: str, columns: list[str]) -> None:
    assert builder(prompt=prompt, fields=FIELDS).columns == columns


def test_rows_are_spooled_in_the_order_given_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchrunner.data.spool.writer.BATCH_ROWS", 2)
    rows = [{"x": number, "y": number} for number in range(5)]
    job = job_over(tmp_path, [*rows[:2], {"x": 2}, *rows[3:]], prompt="{{ fields }}", fields=["x", "y"])
    orders = np.array([[0, 1], [1, 0], [0, 1], [1, 0], [0, 1]], dtype=np.uint8)
    spool = prepare_spool(job, LetterEncoder(), tmp_path / "spool", ignore, orders)
    assert texts_of(spool) == [
        '{"x": 0, "y": 0}',
        '{"y": 1, "x": 1}',
        None,
        '{"y": 3, "x": 3}',
        '{"x": 4, "y": 4}',
    ]
    assert errors_of(spool)[2] == "missing_column"


def test_without_orders_all_rows_have_that_of_the_job(tmp_path: Path) -> None:
    spool = spool_of(tmp_path, [{"x": 1, "y": 2}], prompt="{{ fields }}", fields=["y", "x"])
    assert texts_of(spool) == ['{"y": 2, "x": 1}']


def test_an_input_that_has_grown_since_it_was_ordered_is_refused(tmp_path: Path) -> None:
    job = job_over(tmp_path, [{"x": 1}] * 3, prompt="{{ fields }}", fields=["x"])
    with pytest.raises(DataError, match="the input has grown since its fields were ordered"):
        prepare_spool(job, LetterEncoder(), tmp_path / "spool", ignore, np.zeros((2, 1), dtype=np.uint8))


@pytest.mark.parametrize("prompt", ["{{ a }}", {"column": "a"}])
def test_fields_that_no_template_uses_are_refused(prompt: Any) -> None:
    job = JobSpec(name="j", input="i", output="o", fields=("a", "b"), prompt=prompt)
    with pytest.raises(JobFileError, match=r"j: fields: no template uses them; write \{\{ fields \}\}"):
        compile_templates(job)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"a": 1}, r"fields\[1\]: the input has no column 'b'; it has a"),
        ({"a": 1, "b": 2, "fields": 3}, "the input has a column 'fields'"),
    ],
)
def test_columns_of_fields_are_looked_for_before_anything_is_asked(
    tmp_path: Path, row: dict[str, Any], message: str
) -> None:
    pq.write_table(pa.table({name: [value] for name, value in row.items()}), tmp_path / "in.parquet")
    job = JobSpec(name="j", input=str(tmp_path / "in.parquet"), output="o", fields=("a", "b"), prompt="{{ fields }}")
    with pytest.raises(DataError, match=message):
        ColumnFinder(job)
