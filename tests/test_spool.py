"""Rows as requests on disk, their ids, and the order in which they are run."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrunner.data import rows as rows_module
from batchrunner.data.columns import input_tables
from batchrunner.data.spool import Spool, write_spool
from batchrunner.errors import DataError, JobFileError
from batchrunner.identity import ID_BYTES, request_digest, with_occurrence
from batchrunner.plan.order import run_order
from batchrunner.spec import JobSpec, SamplingParams

NOTHING_DONE = pa.array([], pa.binary(ID_BYTES))


class LetterEncoder:
    """Token ids are code points."""

    def encode_prompt(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    def encode_messages(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        return self.encode_prompt("\n".join(message["content"] for message in messages))


def spool_of(tmp_path: Path, rows: Sequence[Any] | bytes | pa.Table | None, /, **changes: Any) -> Spool:
    """The spool of a job over these rows: JSON objects, the bytes of a JSONL file, or a Parquet table."""
    fields: dict[str, Any] = {"name": "job", "input": str(tmp_path / "in.jsonl"), "output": "o", "prompt": "{{ t }}"}
    if isinstance(rows, pa.Table):
        fields["input"] = str(tmp_path / "in.parquet")
        pq.write_table(rows, fields["input"])
    elif rows is not None:
        content = rows if isinstance(rows, bytes) else b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        (tmp_path / "in.jsonl").write_bytes(content)
    job = JobSpec.model_validate(fields | changes)
    return write_spool(job, LetterEncoder(), "model", tmp_path / "spool.arrow", lambda num_rows: None)


def ids_of(spool: Spool) -> list[bytes | None]:
    found: list[bytes | None] = spool.request_ids.to_pylist()
    return found


def errors_of(spool: Spool) -> list[str | None]:
    found: list[str | None] = spool.table["error_type"].to_pylist()
    return found


# --- rows become requests -------------------------------------------------------------------------------------------


def test_a_row_becomes_a_request(tmp_path: Path) -> None:
    spool = spool_of(tmp_path, [{"t": "ab"}, {"t": "é🎉"}], sampling={"max_tokens": 5})
    assert len(spool) == 2
    sampling = SamplingParams(max_tokens=5)
    for row, token_ids in enumerate([[97, 98], [0xE9, 0x1F389]]):
        request = spool.request(row)
        assert request.token_ids == token_ids
        assert request.sampling == sampling
        assert request.request_id == request_digest("model", token_ids, sampling)


@pytest.mark.parametrize("token_id", [0, 1, 255, 256, 65536, 2**31, 2**32 - 1])
def test_token_ids_of_any_size_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token_id: int) -> None:
    monkeypatch.setattr(LetterEncoder, "encode_prompt", lambda self, text: [token_id, 7])
    assert spool_of(tmp_path, [{"t": "x"}]).request(0).token_ids == [token_id, 7]


def test_the_parameters_of_a_row_come_back(tmp_path: Path) -> None:
    rows = [{"t": "a", "n": 4, "s": "x"}, {"t": "b", "n": None, "s": ["y", "é"]}, {"t": "c", "n": 9, "s": None}]
    sampling = {"max_tokens": {"column": "n"}, "stop": {"column": "s"}, "temperature": 0.5, "seed": 3}
    spool = spool_of(tmp_path, rows, sampling=sampling)
    common: dict[str, Any] = {"temperature": 0.5, "seed": 3}
    assert [spool.sampling(row) for row in range(3)] == [
        SamplingParams(max_tokens=4, stop=("x",), **common),
        SamplingParams(stop=("y", "é"), **common),
        SamplingParams(max_tokens=9, **common),
    ]


def test_rows_come_from_several_files_in_order_whatever_their_kind(tmp_path: Path) -> None:
    pq.write_table(pa.table({"t": ["p", "q"]}), tmp_path / "b.parquet")
    for name, texts in {"a.jsonl": "xy", "c.jsonl": "z"}.items():
        (tmp_path / name).write_text("".join(json.dumps({"t": text}) + "\n" for text in texts))
    spool = spool_of(tmp_path, None, input=[str(tmp_path / name) for name in ("a.jsonl", "b.parquet", "c.jsonl")])
    assert [chr(spool.request(row).token_ids[0]) for row in range(len(spool))] == ["x", "y", "p", "q", "z"]


def test_progress_is_told_for_every_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "BATCH_ROWS", 2)
    (tmp_path / "in.jsonl").write_text('{"t": "a"}\n' * 5)
    job = JobSpec(name="job", input=str(tmp_path / "in.jsonl"), output="o", prompt="{{ t }}")
    counts: list[int] = []
    write_spool(job, LetterEncoder(), "model", tmp_path / "spool.arrow", counts.append)
    assert counts == [2, 2, 1]


@pytest.mark.parametrize("rows", [[], pa.table({"t": pa.array([], pa.string())})], ids=["jsonl", "parquet"])
@pytest.mark.parametrize("temperature", [0, 1])
def test_an_empty_input_is_an_empty_spool(tmp_path: Path, rows: Any, temperature: float) -> None:
    spool = spool_of(tmp_path, rows, sampling={"temperature": temperature})
    assert len(spool) == 0
    assert ids_of(spool) == []
    assert run_order(spool.table, spool.request_ids, "prefix", NOTHING_DONE).tolist() == []


@pytest.mark.parametrize("rows", [[{"t": "a"}] * 3, pa.table({"t": ["a"] * 3})], ids=["jsonl", "parquet"])
def test_a_prompt_that_needs_no_column_is_asked_for_every_row(tmp_path: Path, rows: Any) -> None:
    spool = spool_of(tmp_path, rows, prompt="hi", sampling={"temperature": 1})
    assert [spool.request(row).token_ids for row in range(len(spool))] == [[104, 105]] * 3
    assert len(set(ids_of(spool))) == 3


# --- error rows -----------------------------------------------------------------------------------------------------

BROKEN = b'{"t": "a"}\n{"t": null}\n\n{"t": 1\n{"x": 1}\n{"t": " "}\n{"t": "b"}\n'


def test_a_broken_row_is_an_error_row_with_its_file_and_line(tmp_path: Path) -> None:
    spool = spool_of(tmp_path, BROKEN)
    path = tmp_path / "in.jsonl"
    assert errors_of(spool) == [None, "null_value", "bad_json", "missing_column", "empty_prompt", None]
    errors = spool.table["error"].to_pylist()
    assert errors[0] is errors[5] is None
    assert errors[1] == f"{path}, line 2: null in t, which the template prints"
    assert errors[2].startswith(f"{path}, line 4: not valid JSON: ")
    assert errors[3] == f"{path}, line 5: 't' is undefined; the row has: x"
    assert errors[4] == f"{path}, line 6: the prompt is empty"
    assert [request_id is None for request_id in ids_of(spool)] == [False, True, True, True, True, False]
    assert spool.table["prompt"].to_pylist() == [b"\0\0\0a", None, None, None, None, b"\0\0\0b"]


def test_a_broken_row_of_a_parquet_file_is_named_with_its_file(tmp_path: Path) -> None:
    spool = spool_of(tmp_path, pa.table({"t": ["a", None]}))
    assert errors_of(spool) == [None, "null_value"]
    assert spool.table["error"][1].as_py().startswith(f"{tmp_path / 'in.parquet'}, row ")


def test_a_wrong_parameter_is_an_error_row(tmp_path: Path) -> None:
    spool = spool_of(tmp_path, [{"t": "a", "n": 1.5}, {"t": "a", "n": 2.0}], sampling={"max_tokens": {"column": "n"}})
    assert errors_of(spool) == ["bad_parameter", None]
    assert spool.sampling(1).max_tokens == 2


def test_a_nullable_integer_that_pandas_made_a_float_is_accepted(tmp_path: Path) -> None:
    table = pa.table({"t": ["a", "b", "c"], "n": pa.array([1.0, float("nan"), None])})
    spool = spool_of(tmp_path, table, sampling={"max_tokens": {"column": "n"}})
    assert [spool.sampling(row).max_tokens for row in range(3)] == [1, 256, 256]


def test_with_stop_the_first_broken_row_ends_the_job(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        spool_of(tmp_path, BROKEN, on_error="stop")
    place = f"{tmp_path / 'in.jsonl'}, line 2"
    assert str(caught.value) == f"job: {place}: null in t, which the template prints (on_error: stop)"


def test_with_stop_a_line_that_is_no_json_is_named_once(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        spool_of(tmp_path, b'{"t": "a"}\nbroken\n', on_error="stop")
    assert str(caught.value).startswith(f"job: {tmp_path / 'in.jsonl'}, line 2: not valid JSON: ")
    assert str(caught.value).count("line 2") == 1


def test_a_template_that_does_not_compile_is_told_before_any_row_is_read(tmp_path: Path) -> None:
    with pytest.raises(JobFileError, match=r"^job: prompt: the template does not compile"):
        spool_of(tmp_path, b"broken\n", prompt="{% if", on_error="stop")


# --- request ids ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"), [("seed", 7), ("top_k", 5), ("top_p", 0.5), ("min_p", 0.1)], ids=lambda value: str(value)
)
def test_greedy_requests_are_the_same_whatever_has_no_effect(tmp_path: Path, name: str, value: float) -> None:
    rows = [{"t": "a", "c": None}, {"t": "a", "c": value}, {"t": "a", "c": None}]
    ids = ids_of(spool_of(tmp_path, rows, sampling={name: {"column": "c"}}))
    assert ids[0] is not None
    assert ids == [ids[0]] * 3


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_tokens", 7), ("temperature", 0.5), ("stop", "x"), ("stop_token_ids", [5]), ("ignore_eos", True)],
)
def test_what_changes_an_answer_changes_the_id(tmp_path: Path, name: str, value: Any) -> None:
    rows = [{"t": "a", "c": None}, {"t": "a", "c": value}]
    first, second = ids_of(spool_of(tmp_path, rows, sampling={name: {"column": "c"}}))
    assert first != second


@pytest.mark.parametrize("name", ["seed", "top_k", "top_p", "min_p"])
def test_for_sampled_requests_every_parameter_changes_the_id(tmp_path: Path, name: str) -> None:
    rows = [{"t": "a", "c": None}, {"t": "a", "c": 0.5 if name.endswith("_p") else 3}]
    sampling = {name: {"column": "c"}, "temperature": 1}
    first, second = ids_of(spool_of(tmp_path, rows, sampling=sampling))
    assert first == request_digest("model", [97], SamplingParams(temperature=1))
    assert second not in (first, with_occurrence(first, 1))


def test_the_model_and_the_prompt_change_the_id() -> None:
    params = SamplingParams()
    digests = [request_digest(model, ids, params) for model in ("a", "b") for ids in ([1], [1, 0], [256], [])]
    assert len(set(digests)) == len(digests)
    assert {len(digest) for digest in digests} == {ID_BYTES}


def test_equal_sampled_rows_get_the_ids_of_their_occurrences(tmp_path: Path) -> None:
    texts = ["a", "b", "a", None, "a", "b", None]
    spool = spool_of(tmp_path, [{"t": text} for text in texts], sampling={"temperature": 1})
    params = SamplingParams(temperature=1)
    a, b = (request_digest("model", [ord(letter)], params) for letter in "ab")
    assert ids_of(spool) == [
        a,
        b,
        with_occurrence(a, 1),
        None,
        with_occurrence(a, 2),
        with_occurrence(b, 1),
        None,
    ]


def test_greedy_rows_share_an_id_also_among_sampled_ones(tmp_path: Path) -> None:
    rows = [{"t": "a", "temp": temp} for temp in (0, 1, 0, 1, None)]
    ids = ids_of(spool_of(tmp_path, rows, sampling={"temperature": {"column": "temp"}}))
    assert ids[0] == ids[2] == ids[4]
    assert ids[3] == with_occurrence(ids[1] or b"", 1)
    assert len(set(ids)) == 3


@pytest.mark.parametrize("batch_rows", [1, 2, 1024])
def test_ids_do_not_depend_on_batches_and_are_the_same_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_rows: int
) -> None:
    rows = [{"t": text, "s": seed} for seed in (1, 2) for text in ("a", "b", "a", "", "a")]
    sampling = {"temperature": 1, "seed": {"column": "s"}}
    expected = ids_of(spool_of(tmp_path, rows, sampling=sampling))
    monkeypatch.setattr(rows_module, "BATCH_ROWS", batch_rows)
    assert ids_of(spool_of(tmp_path, rows, sampling=sampling)) == expected


@given(st.lists(st.sampled_from([None, "a", "b", "ab"]), max_size=12), st.integers(1, 5))
def test_the_ids_of_an_extended_input_begin_with_those_of_the_input(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str | None], num_more: int
) -> None:
    tmp_path = tmp_path_factory.mktemp("spool")
    rows = [{"t": text} for text in texts]
    ids = ids_of(spool_of(tmp_path, rows, sampling={"temperature": 1}))
    more = ids_of(spool_of(tmp_path, rows + [{"t": "a"}] * num_more, sampling={"temperature": 1}))
    assert more[: len(ids)] == ids
    valid = [request_id for request_id in more if request_id is not None]
    assert len(set(valid)) == len(valid)


# --- columns --------------------------------------------------------------------------------------------------------


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
    def encode(self: LetterEncoder, text: str) -> list[int]:
        with (tmp_path / "in.jsonl").open("a") as file:
            file.write("\n")
        return [1]

    monkeypatch.setattr(LetterEncoder, "encode_prompt", encode)
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


# --- order ----------------------------------------------------------------------------------------------------------


def prompts_of(token_ids: Sequence[Sequence[int] | None], num_chunks: int = 1) -> pa.ChunkedArray:
    """Prompts as the spool holds them, in one or more chunks."""
    values = [None if ids is None else np.asarray(ids, dtype=">u4").tobytes() for ids in token_ids]
    pieces = np.array_split(np.arange(len(values)), num_chunks)
    return pa.chunked_array([pa.array([values[i] for i in piece], pa.large_binary()) for piece in pieces])


def table(prompts: pa.ChunkedArray) -> pa.Table:
    return pa.table({"prompt": prompts})


def ids(*numbers: int | None) -> pa.Array:
    return pa.array([None if n is None else n.to_bytes(ID_BYTES, "big") for n in numbers], pa.binary(ID_BYTES))


def test_prompts_that_begin_alike_become_neighbours() -> None:
    prompts = prompts_of([[5, 1], [3], [5], [256, 1], [5, 1, 0], [3, 9]])
    assert run_order(table(prompts), ids(0, 1, 2, 3, 4, 5), "prefix", NOTHING_DONE).tolist() == [1, 5, 2, 0, 4, 3]


def test_fcfs_keeps_the_order_of_the_input() -> None:
    prompts = prompts_of([[5], [1], None, [5], [0]])
    assert run_order(table(prompts), ids(0, 1, None, 0, 4), "fcfs", NOTHING_DONE).tolist() == [0, 1, 4]


def test_the_most_urgent_rows_come_first_and_speak_for_their_equals() -> None:
    spool = pa.table({"prompt": prompts_of([[1], [2], [3], [2], [4]]), "priority": [0, 0, 5, 7, 0]})
    assert run_order(spool, ids(1, 2, 3, 2, 4), "priority", NOTHING_DONE).tolist() == [3, 2, 0, 4]


@pytest.mark.parametrize("policy", ["prefix", "fcfs"])
def test_each_distinct_request_is_run_once_and_errors_never(policy: Any) -> None:
    prompts = prompts_of([None, [1], [1], [2], None, [2], [1]])
    assert run_order(table(prompts), ids(None, 7, 7, 8, None, 8, 7), policy, NOTHING_DONE).tolist() == [1, 3]


@pytest.mark.parametrize("policy", ["prefix", "fcfs"])
def test_what_is_done_is_not_run_again(policy: Any) -> None:
    prompts = prompts_of([[1], [2], [3], [1], None])
    request_ids = ids(1, 2, 3, 1, None)
    assert run_order(table(prompts), request_ids, policy, ids(2)).tolist() == [0, 2]
    assert run_order(table(prompts), request_ids, policy, ids(1, 3, 99)).tolist() == [1]
    assert run_order(table(prompts), request_ids, policy, ids(3, 2, 1)).tolist() == []


def test_equal_prompts_with_different_ids_keep_the_order_of_the_input() -> None:
    prompts = prompts_of([[1]] * 50, num_chunks=3)
    assert run_order(table(prompts), ids(*range(50)), "prefix", NOTHING_DONE).tolist() == list(range(50))


TOKEN_IDS = st.lists(st.one_of(st.integers(0, 3), st.integers(0, 2**32 - 1)), max_size=6)


@given(st.lists(st.one_of(st.none(), TOKEN_IDS), max_size=30), st.integers(1, 4), st.data())
def test_the_prefix_order_is_the_order_of_the_token_ids(
    token_ids: list[list[int] | None], num_chunks: int, data: st.DataObject
) -> None:
    numbers: dict[tuple[int, ...], int] = {}
    request_ids = [None if tokens is None else numbers.setdefault(tuple(tokens), len(numbers)) for tokens in token_ids]
    done = data.draw(st.sets(st.sampled_from(sorted(numbers.values())))) if numbers else set()
    first = {number: row for row, number in reversed(list(enumerate(request_ids))) if number is not None}
    wanted = [row for number, row in first.items() if number not in done]

    found = run_order(table(prompts_of(token_ids, num_chunks)), ids(*request_ids), "prefix", ids(*done))
    assert found.tolist() == sorted(wanted, key=lambda row: token_ids[row] or [])
    in_input_order = run_order(table(prompts_of(token_ids, num_chunks)), ids(*request_ids), "fcfs", ids(*done))
    assert in_input_order.tolist() == sorted(wanted)


def test_the_order_of_a_whole_job(tmp_path: Path) -> None:
    spool = spool_of(tmp_path, [{"t": text} for text in ["bb", "a", None, "b", "a", "ab"]])
    order = run_order(spool.table, spool.request_ids, "prefix", NOTHING_DONE)
    assert order.tolist() == [1, 5, 3, 0]
