"""The output: every input row once, in order, with its answer and its bookkeeping, in files others can read."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrunner.checkpoint.parts import SCHEMA
from batchrunner.data import outputs
from batchrunner.data.input import rows as rows_module
from batchrunner.data.outputs import BOOKKEEPING, Results, output_schema, output_tables, write_output_files
from batchrunner.data.spool.spool import Spool, prepare_spool
from batchrunner.errors import DataError
from batchrunner.identity import ID_BYTES
from batchrunner.spec.job import JobSpec
from tests.data.spools import LetterEncoder


def result(request_id: bytes, text: str) -> dict[str, Any]:
    record = {"request_id": request_id, "text": text, "finish_reason": "stop", "error_type": None, "error": None}
    counts = {"num_prompt_tokens": 1, "num_output_tokens": len(text), "num_cached_tokens": 0, "num_preemptions": 0}
    return record | counts


def parts_of(records: Sequence[dict[str, Any]], size: int) -> Iterator[pa.Table]:
    """Parts of this many results each, after the empty one that is always there."""
    yield SCHEMA.empty_table()
    for start in range(0, len(records), size):
        yield pa.Table.from_pylist(list(records[start : start + size]), SCHEMA)


def request_id_of(number: int) -> bytes:
    return number.to_bytes(ID_BYTES, "big")


def results_of(tmp_path: Path, num_results: int, size: int) -> Results:
    records = [result(request_id_of(number), f"text {number}") for number in range(num_results)]
    return Results(parts_of(records, size), tmp_path / "results.arrow")


# --- results by id --------------------------------------------------------------------------------------------------


@given(
    st.integers(1, 5),
    st.integers(0, 12).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.integers(-1, n - 1), max_size=25))),
)
def test_results_are_taken_in_any_order_from_any_part(
    tmp_path_factory: pytest.TempPathFactory, size: int, drawn: tuple[int, list[int]]
) -> None:
    num_results, positions = drawn
    results = results_of(tmp_path_factory.mktemp("results"), num_results, size)
    table = results.take(np.array(positions, dtype=np.int64))
    assert table.schema == SCHEMA
    assert table["text"].to_pylist() == [None if position < 0 else f"text {position}" for position in positions]
    assert table["request_id"].to_pylist() == [None if p < 0 else request_id_of(p) for p in positions]
    assert table["num_prompt_tokens"].to_pylist() == [None if p < 0 else 1 for p in positions]


@given(st.integers(1, 5), st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=20))
def test_the_place_of_a_result_is_found_by_its_id(
    tmp_path_factory: pytest.TempPathFactory, size: int, numbers: list[int | None]
) -> None:
    results = results_of(tmp_path_factory.mktemp("results"), 10, size)
    ids = pa.array([None if number is None else request_id_of(number) for number in numbers], pa.binary(ID_BYTES))
    assert results.positions(ids).tolist() == [-1 if number is None else number for number in numbers]


def test_a_result_that_is_missing_is_an_error_and_no_null(tmp_path: Path) -> None:
    results = results_of(tmp_path, 3, 2)
    with pytest.raises(DataError, match="a row has no result although all were computed"):
        results.positions(pa.array([request_id_of(1), request_id_of(3)], pa.binary(ID_BYTES)))


def test_without_any_result_rows_that_were_never_asked_are_null(tmp_path: Path) -> None:
    results = results_of(tmp_path, 0, 1)
    assert results.positions(pa.nulls(2, pa.binary(ID_BYTES))).tolist() == [-1, -1]
    assert results.take(np.array([-1, -1])).to_pylist() == [dict.fromkeys(SCHEMA.names)] * 2


# --- the table ------------------------------------------------------------------------------------------------------


def spool_of(tmp_path: Path, rows: Sequence[Any] | bytes | pa.Table, /, **changes: Any) -> Spool:
    path = tmp_path / ("in.parquet" if isinstance(rows, pa.Table) else "in.jsonl")
    if isinstance(rows, pa.Table):
        pq.write_table(rows, path)
    else:
        content = rows if isinstance(rows, bytes) else b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        path.write_bytes(content)
    fields: dict[str, Any] = {"name": "job", "input": str(path), "output": "o", "prompt": "{{ t }}"}
    job = JobSpec.model_validate(fields | changes)
    return prepare_spool(job, LetterEncoder(), tmp_path / "spool", lambda num_rows: None)


def answers(spool: Spool, tmp_path: Path, size: int = 2, **changes: Any) -> Results:
    """Results for every distinct request of the spool, last ones first. The text is the prompt in capitals."""
    records: dict[bytes, dict[str, Any]] = {}
    for row in reversed(range(len(spool))):
        if spool.request_ids[row].is_valid:
            request = spool.request(row)
            text = "".join(map(chr, request.token_ids)).upper()
            records[request.request_id] = result(request.request_id, text) | changes.get(text, {})
    return Results(parts_of(list(records.values()), size), tmp_path / "results.arrow")


def output_of(spool: Spool, results: Results, column: str = "response") -> list[dict[str, Any]]:
    return [row for table in output_tables(spool, results, column) for row in table.to_pylist()]


TEXTS = ["b", "a", None, "c", "a", "b", "d"]


@pytest.mark.parametrize("batch_rows", [1, 3, 100])
@pytest.mark.parametrize("as_parquet", [False, True], ids=["jsonl", "parquet"])
def test_the_output_has_every_row_once_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_rows: int, as_parquet: bool
) -> None:
    monkeypatch.setattr(rows_module, "BATCH_ROWS", batch_rows)
    rows = [{"i": i, "t": text} for i, text in enumerate(TEXTS)]
    spool = spool_of(tmp_path, pa.Table.from_pylist(rows) if as_parquet else rows)
    found = output_of(spool, answers(spool, tmp_path))
    assert [{"i": row["i"], "t": row["t"]} for row in found] == rows
    assert [row["response"] for row in found] == [text and text.upper() for text in TEXTS]
    ids = [request_id and request_id.hex() for request_id in spool.request_ids.to_pylist()]
    assert [row["_batchrun"]["request_id"] for row in found] == ids
    assert ids[1] == ids[4]
    assert [row["_batchrun"]["error_type"] for row in found] == [None, None, "null_value", None, None, None, None]


def test_the_bookkeeping_of_a_row_tells_how_its_answer_came_about(tmp_path: Path) -> None:
    spool = spool_of(tmp_path, [{"t": "a", "s": 5}], sampling={"temperature": 1, "seed": {"column": "s"}})
    counts = {"num_prompt_tokens": 9, "num_output_tokens": 8, "num_cached_tokens": 7, "num_preemptions": 6}
    results = answers(spool, tmp_path, A={"finish_reason": "length", **counts})
    assert output_of(spool, results) == [
        {
            "t": "a",
            "s": 5,
            "response": "A",
            "_batchrun": {
                "request_id": spool.request_ids[0].as_py().hex(),
                "finish_reason": "length",
                **counts,
                "seed": 5,
                "error_type": None,
                "error": None,
            },
        }
    ]


def test_a_row_that_was_never_asked_has_its_error_and_no_answer(tmp_path: Path) -> None:
    spool = spool_of(tmp_path, b'{"t": "a"}\n{"t": nonsense}\n')
    first, second = output_of(spool, answers(spool, tmp_path))
    assert first["response"] == "A"
    assert (second["t"], second["response"]) == (None, None)
    bookkeeping = second["_batchrun"]
    error = bookkeeping.pop("error")
    assert error.startswith(f"{tmp_path / 'in.jsonl'}, line 2: not valid JSON")
    assert bookkeeping.pop("error_type") == "bad_json"
    assert bookkeeping.pop("finish_reason") == "error"
    assert set(bookkeeping.values()) == {None}


def test_a_request_that_failed_tells_its_error_in_all_its_rows(tmp_path: Path) -> None:
    spool = spool_of(tmp_path, [{"t": "a"}, {"t": "b"}, {"t": "a"}])
    failed = {"text": None, "finish_reason": "error", "error_type": "prompt_too_long", "error": "too long"}
    first, second, third = output_of(spool, answers(spool, tmp_path, A=failed))
    assert first == third
    assert (first["response"], second["response"]) == (None, "B")
    assert first["_batchrun"] | {"error_type": "prompt_too_long", "error": "too long"} == first["_batchrun"]
    assert first["_batchrun"]["finish_reason"] == "error"
    assert first["_batchrun"]["seed"] is None
    assert first["_batchrun"]["num_prompt_tokens"] == 1
    assert first["_batchrun"]["request_id"] == spool.request_ids[0].as_py().hex()


def test_equal_sampled_rows_have_answers_of_their_own(tmp_path: Path) -> None:
    spool = spool_of(tmp_path, [{"t": "a"}, {"t": "a"}], sampling={"temperature": 1})
    ids = spool.request_ids.to_pylist()
    records = [result(ids[1], "second"), result(ids[0], "first")]
    found = output_of(spool, Results(parts_of(records, 1), tmp_path / "results.arrow"))
    assert [row["response"] for row in found] == ["first", "second"]


@pytest.mark.parametrize("rows", [[], [{"t": None}], [{"t": "a"}]], ids=["empty", "only errors", "answered"])
def test_the_type_of_answer_and_bookkeeping_does_not_depend_on_the_rows(tmp_path: Path, rows: list[Any]) -> None:
    spool = spool_of(tmp_path, rows)
    schema = output_schema(spool, "label")
    assert schema.names[-2:] == ["label", "_batchrun"]
    assert schema.field("label").type == pa.string()
    assert schema.field("_batchrun").type == BOOKKEEPING
    for table in output_tables(spool, answers(spool, tmp_path), "label"):
        assert table.schema == schema


def test_only_the_chosen_columns_are_in_the_output(tmp_path: Path) -> None:
    spool = spool_of(tmp_path, [{"t": "a", "x": 1, "y": 2}], columns=["y"])
    (row,) = output_of(spool, answers(spool, tmp_path))
    assert list(row) == ["y", "response", "_batchrun"]
    assert row["y"] == 2


@pytest.mark.parametrize("as_parquet", [False, True], ids=["jsonl", "parquet"])
def test_an_output_without_input_columns_still_has_all_rows(tmp_path: Path, as_parquet: bool) -> None:
    rows = [{"t": text} for text in "abc"]
    spool = spool_of(tmp_path, pa.Table.from_pylist(rows) if as_parquet else rows, columns=[])
    assert [row["response"] for row in output_of(spool, answers(spool, tmp_path))] == ["A", "B", "C"]


def test_a_missing_result_ends_the_output(tmp_path: Path) -> None:
    spool = spool_of(tmp_path, [{"t": "a"}])
    with pytest.raises(DataError, match="a row has no result"):
        output_of(spool, Results(parts_of([], 1), tmp_path / "results.arrow"))


# --- an input that changes meanwhile --------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_rows", [1, 100])
def test_an_input_that_has_grown_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_rows: int) -> None:
    monkeypatch.setattr(rows_module, "BATCH_ROWS", batch_rows)
    spool = spool_of(tmp_path, [{"t": "a"}, {"t": "b"}])
    results = answers(spool, tmp_path)
    with (tmp_path / "in.jsonl").open("a") as file:
        file.write('{"t": "c"}\n')
    with pytest.raises(DataError, match="the input has grown while the job ran; run the job again"):
        output_of(spool, results)


@pytest.mark.parametrize(("content", "num_rows"), [('{"t": "a"}\n', 1), ("", 0)])
def test_an_input_that_has_shrunk_is_refused(tmp_path: Path, content: str, num_rows: int) -> None:
    spool = spool_of(tmp_path, [{"t": "a"}, {"t": "b"}])
    results = answers(spool, tmp_path)
    (tmp_path / "in.jsonl").write_text(content)
    with pytest.raises(DataError, match=f"^the input had 2 rows when the job began and has {num_rows} now; "):
        output_of(spool, results)


def test_an_input_whose_types_have_changed_is_refused(tmp_path: Path) -> None:
    spool = spool_of(tmp_path, [{"t": "a", "n": 1}])
    results = answers(spool, tmp_path)
    (tmp_path / "in.jsonl").write_text('{"t": "a", "n": "x"}\n')
    with pytest.raises(DataError, match="column 'n' cannot be kept"):
        output_of(spool, results)


def test_a_parquet_input_that_is_gone_is_refused(tmp_path: Path) -> None:
    spool = spool_of(tmp_path, pa.table({"t": ["a"]}))
    results = answers(spool, tmp_path)
    (tmp_path / "in.parquet").unlink()
    with pytest.raises(DataError, match=r"in\.parquet: not readable"):
        output_of(spool, results)


def test_a_jsonl_input_that_is_gone_is_refused(tmp_path: Path) -> None:
    spool = spool_of(tmp_path, [{"t": "a"}])
    results = answers(spool, tmp_path)
    (tmp_path / "in.jsonl").unlink()
    with pytest.raises(DataError, match=r"in\.jsonl"):
        output_of(spool, results)


def test_an_input_with_as_many_but_other_rows_is_refused(tmp_path: Path) -> None:
    spool = spool_of(tmp_path, [{"t": "a"}, {"t": "b"}])
    results = answers(spool, tmp_path)
    (tmp_path / "in.jsonl").write_text('{"t": "b"}\n{"t": "other"}\n')
    with pytest.raises(DataError):
        output_of(spool, results)


# --- the files ------------------------------------------------------------------------------------------------------


def numbers(num_rows: int, size: int) -> Iterator[pa.Table]:
    """A table of the numbers from 0 on, in pieces of this size."""
    for start in range(0, num_rows, size):
        yield pa.table({"i": list(range(start, min(start + size, num_rows)))})


@pytest.mark.parametrize("size", [1, 3, 5, 7, 100])
@pytest.mark.parametrize(
    ("num_rows", "groups"),
    [
        (0, [[]]),
        (1, [[1]]),
        (5, [[5]]),
        (6, [[5, 1]]),
        (10, [[5, 5]]),
        (11, [[5, 5], [1]]),
        (20, [[5, 5], [5, 5]]),
        (23, [[5, 5], [5, 5], [3]]),
    ],
)
def test_rows_are_divided_into_groups_and_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, num_rows: int, groups: list[list[int]]
) -> None:
    monkeypatch.setattr(outputs, "ROWS_PER_GROUP", 5)
    monkeypatch.setattr(outputs, "ROWS_PER_FILE", 10)
    schema = pa.schema([("i", pa.int64())])
    files = write_output_files(numbers(num_rows, size), schema, num_rows, tmp_path)
    names = [f"data-{index:05}-of-{len(groups):05}.parquet" for index in range(len(groups))]
    assert [file.path.name for file in files] == names
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert [file.num_rows for file in files] == [sum(group) for group in groups]
    metadata = [pq.read_metadata(file.path) for file in files]
    assert [[m.row_group(i).num_rows for i in range(m.num_row_groups)] for m in metadata] == groups
    assert [i for file in files for i in pq.read_table(file.path)["i"].to_pylist()] == list(range(num_rows))


def test_a_file_holds_a_whole_number_of_groups() -> None:
    assert outputs.ROWS_PER_FILE % outputs.ROWS_PER_GROUP == 0


def test_tables_are_not_all_held_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "ROWS_PER_GROUP", 5)
    monkeypatch.setattr(outputs, "ROWS_PER_FILE", 10)
    num_read_when_first_file_is_there: list[int] = []

    def watched() -> Iterator[pa.Table]:
        for number, table in enumerate(numbers(40, 1)):
            if not num_read_when_first_file_is_there and (tmp_path / "data-00001-of-00004.parquet").exists():
                num_read_when_first_file_is_there.append(number)
            yield table

    write_output_files(watched(), pa.schema([("i", pa.int64())]), 40, tmp_path)
    assert num_read_when_first_file_is_there == [10]


def test_pages_carry_checksums(tmp_path: Path) -> None:
    (file,) = write_output_files(numbers(1000, 1000), pa.schema([("i", pa.int64())]), 1000, tmp_path)
    content = bytearray(file.path.read_bytes())
    content[100] ^= 1
    file.path.write_bytes(bytes(content))
    with pytest.raises(OSError, match="CRC checksum"):
        pq.read_table(file.path, page_checksum_verification=True)


def test_dictionaries_that_differ_from_batch_to_batch_are_written_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_module, "BATCH_ROWS", 2)
    letters = ["a", "b", None, "c", "a", "d", "e"]
    spool = spool_of(tmp_path, pa.table({"t": ["x"] * 7, "d": pa.array(letters).dictionary_encode()}))
    schema = output_schema(spool, "response")
    assert schema.field("d").type == pa.dictionary(pa.int32(), pa.string())
    tables = output_tables(spool, answers(spool, tmp_path), "response")
    (file,) = write_output_files(tables, schema, len(spool), tmp_path)
    assert pq.read_table(file.path)["d"].to_pylist() == letters


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An output of several files with rich columns, an error row, and what else lies in an output folder."""
    monkeypatch.setattr(outputs, "ROWS_PER_GROUP", 2)
    monkeypatch.setattr(outputs, "ROWS_PER_FILE", 4)
    rows = [{"i": i, "t": text, "meta": {"k": [i]}, "mixed": i if i % 2 else "x"} for i, text in enumerate(TEXTS)]
    spool = spool_of(tmp_path, rows)
    folder = tmp_path / "out"
    folder.mkdir()
    schema = output_schema(spool, "label")
    write_output_files(output_tables(spool, answers(spool, tmp_path), "label"), schema, len(spool), folder)
    for name in ("_SUCCESS", "summary.json", "report.html", ".batchrun/state.json"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("{}")
    return folder


LABELS = [text and text.upper() for text in TEXTS]


def test_pandas_reads_the_files(folder: Path) -> None:
    frame = pd.concat([pd.read_parquet(path) for path in sorted(folder.glob("data-*.parquet"))])
    assert frame["i"].tolist() == list(range(7))
    assert [None if pd.isna(label) else label for label in frame["label"]] == LABELS
    assert [meta["k"].tolist() for meta in frame["meta"]] == [[i] for i in range(7)]
    assert [row["error_type"] for row in frame["_batchrun"]].count("null_value") == 1


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("{folder}", {}),
        ("parquet", {"data_files": "{folder}/*.parquet"}),
    ],
    ids=["folder", "data_files"],
)
def test_datasets_reads_the_folder_as_it_is(folder: Path, tmp_path: Path, path: str, place: dict[str, str]) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    found = datasets.load_dataset(
        path.format(folder=folder),
        **{name: value.format(folder=folder) for name, value in place.items()},
        split="train",
        cache_dir=str(tmp_path / "cache"),
    )
    assert found.column_names == ["i", "t", "meta", "mixed", "label", "_batchrun"]
    assert found["i"][:] == list(range(7))
    assert found["label"][:] == LABELS
    assert found["mixed"][:2] == ['"x"', "1"]
    assert found[2]["_batchrun"]["error_type"] == "null_value"


def test_an_empty_input_gives_one_file_without_rows_that_can_be_read(tmp_path: Path) -> None:
    spool = spool_of(tmp_path, pa.table({"t": pa.array([], pa.string()), "n": pa.array([], pa.int32())}))
    folder = tmp_path / "out"
    folder.mkdir()
    schema = output_schema(spool, "response")
    tables = output_tables(spool, answers(spool, tmp_path), "response")
    (file,) = write_output_files(tables, schema, 0, folder)
    assert (file.path.name, file.num_rows) == ("data-00000-of-00001.parquet", 0)
    assert pq.read_schema(file.path).names == ["t", "n", "response", "_batchrun"]
    assert len(pd.read_parquet(folder)) == 0
