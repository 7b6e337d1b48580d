"""Which columns of the input pass through to the output: found while the rows are spooled."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchrunner.data.input.columns import input_tables
from batchrunner.data.spool.spool import Spool
from batchrunner.errors import DataError
from tests.data.spools import LetterEncoder, errors_of, spool_of


def names_of(spool: Spool) -> list[str]:
    return list(spool.columns.schema.names)


KINDS = pytest.mark.parametrize("as_parquet", [False, True], ids=["jsonl", "parquet"])


def rows_as(as_parquet: bool, rows: list[dict[str, Any]]) -> Any:
    return pa.Table.from_pylist(rows) if as_parquet else rows


@KINDS
@pytest.mark.parametrize("name", ["response", "_batchrun"])
def test_a_column_that_the_output_needs_is_refused(tmp_path: Path, as_parquet: bool, name: str) -> None:
    with pytest.raises(DataError, match=f"^job: the input has a column '{name}' already; "):
        spool_of(tmp_path, rows_as(as_parquet, [{"t": "a", name: "x"}]))


def test_the_remedy_fits_the_collision(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"name the answer otherwise \(column:\)"):
        spool_of(tmp_path, [{"t": "a", "label": "x"}], column="label")
    with pytest.raises(DataError, match=r"choose what to keep \(columns:\)"):
        spool_of(tmp_path, [{"t": "a", "_batchrun": "x"}])


@KINDS
def test_a_collision_goes_away_with_another_name_or_without_the_column(tmp_path: Path, as_parquet: bool) -> None:
    rows = rows_as(as_parquet, [{"t": "a", "response": "x", "_batchrun": "y"}])
    assert names_of(spool_of(tmp_path, rows, columns=["t", "response"], column="label")) == ["t", "response"]
    assert names_of(spool_of(tmp_path, rows, columns=["t"])) == ["t"]


@KINDS
@pytest.mark.parametrize(
    ("columns", "names"),
    [(None, ["t", "a", "b"]), (["b", "t"], ["b", "t"]), (["a"], ["a"]), ([], [])],
)
def test_columns_chooses_what_passes_through_and_its_order(
    tmp_path: Path, as_parquet: bool, columns: list[str] | None, names: list[str]
) -> None:
    rows: list[dict[str, Any]] = [{"t": "x", "a": 1, "b": [1]}, {"t": "y", "a": None, "b": []}]
    spool = spool_of(tmp_path, rows_as(as_parquet, rows), columns=columns)
    assert names_of(spool) == names
    passed = spool.columns
    (table,) = input_tables(passed.files, passed.schema, passed.json_names)
    assert table.num_rows == 2
    assert (table.to_pylist() if names else []) == (
        [{name: row[name] for name in names} for row in rows] if names else []
    )


@KINDS
def test_a_chosen_column_that_is_not_there_is_refused(tmp_path: Path, as_parquet: bool) -> None:
    with pytest.raises(DataError, match=r"^job: columns: the input has no 'c'; it has t, a$"):
        spool_of(tmp_path, rows_as(as_parquet, [{"t": "x", "a": 1}]), columns=["t", "c"])


def test_a_column_chosen_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        spool_of(tmp_path, [{"t": "x"}], columns=["t", "t"])


def test_an_empty_jsonl_file_is_no_error_with_chosen_columns(tmp_path: Path) -> None:
    assert len(spool_of(tmp_path, [], columns=["t"])) == 0


def test_an_input_of_nothing_but_broken_lines_has_its_chosen_columns(tmp_path: Path) -> None:
    spool = spool_of(tmp_path, b"broken\n", columns=["t"], sampling={"seed": {"column": "s"}})
    assert spool.columns.schema == pa.schema([("t", pa.null())])
    assert errors_of(spool) == ["bad_json"]


@KINDS
def test_a_parameter_whose_column_is_nowhere_is_refused(tmp_path: Path, as_parquet: bool) -> None:
    with pytest.raises(DataError, match=r"^job: sampling\.seed: the input has no column 's'; it has t$"):
        spool_of(tmp_path, rows_as(as_parquet, [{"t": "x"}]), sampling={"seed": {"column": "s"}})


def test_a_row_that_leaves_out_a_parameter_takes_the_default(tmp_path: Path) -> None:
    spool = spool_of(tmp_path, [{"t": "x"}, {"t": "x", "s": 5}], sampling={"seed": {"column": "s"}})
    assert [spool.sampling(row).seed for row in range(2)] == [0, 5]


def test_json_text_and_parquet_text_do_not_mix(tmp_path: Path) -> None:
    pq.write_table(pa.table({"t": ["p"], "n": ["text"]}), tmp_path / "a.parquet")
    (tmp_path / "b.jsonl").write_text('{"t": "q", "n": "x"}\n{"t": "q", "n": 1}\n')
    inputs = [str(tmp_path / "a.parquet"), str(tmp_path / "b.jsonl")]
    with pytest.raises(DataError, match="'n' is string in Parquet, and in JSONL of mixed kinds"):
        spool_of(tmp_path, None, input=inputs)
    assert len(spool_of(tmp_path, None, input=inputs, columns=["t"])) == 3


def test_an_input_that_changes_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def encode(self: LetterEncoder, texts: Sequence[str]) -> list[list[int]]:
        with (tmp_path / "in.jsonl").open("a") as file:
            file.write("\n")
        return [[1] for _ in texts]

    monkeypatch.setattr(LetterEncoder, "encode_prompts", encode)
    with pytest.raises(DataError, match=r"in\.jsonl: the file has changed while the job ran"):
        spool_of(tmp_path, [{"t": "x"}])


def test_parquet_and_jsonl_files_together_have_one_schema(tmp_path: Path) -> None:
    pq.write_table(pa.table({"t": ["p"], "n": pa.array([1], pa.int8()), "p": ["only"]}), tmp_path / "a.parquet")
    (tmp_path / "b.jsonl").write_text('{"t": "q", "n": 300, "j": true}\n')
    spool = spool_of(tmp_path, None, input=[str(tmp_path / "a.parquet"), str(tmp_path / "b.jsonl")])
    passed = spool.columns
    found = [row for table in input_tables(passed.files, passed.schema, passed.json_names) for row in table.to_pylist()]
    assert found == [
        {"t": "p", "n": 1, "p": "only", "j": None},
        {"t": "q", "n": 300, "p": None, "j": True},
    ]


def test_parquet_and_jsonl_files_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"t": ["p"], "n": [1]}), tmp_path / "a.parquet")
    (tmp_path / "b.jsonl").write_text('{"t": "q", "n": "x"}\n')
    with pytest.raises(DataError, match=r"^job: the columns of the Parquet and the JSONL files differ: .*n"):
        spool_of(tmp_path, None, input=[str(tmp_path / "a.parquet"), str(tmp_path / "b.jsonl")])


@pytest.mark.parametrize(("in_parquet", "in_jsonl"), [(2**60, 0.5), (0.5, 2**60)])
def test_large_integers_in_one_kind_of_file_and_floats_in_the_other_stay_exact_or_are_refused_at_once(
    tmp_path: Path, in_parquet: float, in_jsonl: float
) -> None:
    pq.write_table(pa.table({"t": ["p"], "n": [in_parquet]}), tmp_path / "a.parquet")
    (tmp_path / "b.jsonl").write_text(json.dumps({"t": "q", "n": in_jsonl}) + "\n")
    try:
        spool = spool_of(tmp_path, None, input=[str(tmp_path / "a.parquet"), str(tmp_path / "b.jsonl")])
    except DataError:
        return
    assert spool.columns.schema.field("n").type != pa.float64()


def test_a_missing_input_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        spool_of(tmp_path, None)
