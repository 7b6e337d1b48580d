"""Rows become requests on disk, or error rows."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchrunner.data.spool import writer as spool_writer
from batchrunner.errors import DataError, JobFileError
from batchrunner.identity import question_digest, request_id
from batchrunner.spec.sampling import SamplingParams
from tests.data.spools import MODEL, LetterEncoder, errors_of, ids_of, job_over, spool_of, spooled


def test_a_row_becomes_a_request(tmp_path: Path) -> None:
    spool = spool_of(tmp_path, [{"t": "ab"}, {"t": "é🎉"}], sampling={"max_tokens": 5})
    assert len(spool) == 2
    sampling = SamplingParams(max_tokens=5)
    for row, token_ids in enumerate([[97, 98], [0xE9, 0x1F389]]):
        request = spool.request(row)
        assert request.token_ids == token_ids
        assert request.sampling == sampling
        assert request.request_id == request_id(MODEL, question_digest(token_ids, sampling), 0)


@pytest.mark.parametrize("token_id", [0, 1, 255, 256, 65536, 2**31, 2**32 - 1])
def test_token_ids_of_any_size_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token_id: int) -> None:
    monkeypatch.setattr(LetterEncoder, "encode_prompts", lambda self, texts: [[token_id, 7] for _ in texts])
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
    monkeypatch.setattr(spool_writer, "BATCH_ROWS", 2)
    counts: list[int] = []
    spooled(job_over(tmp_path, [{"t": "a"}] * 5), tmp_path, on_rows=counts.append)
    assert counts == [2, 2, 1]


@pytest.mark.parametrize("rows", [[], pa.table({"t": pa.array([], pa.string())})], ids=["jsonl", "parquet"])
@pytest.mark.parametrize("temperature", [0, 1])
def test_an_empty_input_is_an_empty_spool(tmp_path: Path, rows: Any, temperature: float) -> None:
    spool = spool_of(tmp_path, rows, sampling={"temperature": temperature})
    assert len(spool) == 0
    assert ids_of(spool) == []
    assert list(spool.prompt_batches()) == []


@pytest.mark.parametrize("rows", [[{"t": "a"}] * 3, pa.table({"t": ["a"] * 3})], ids=["jsonl", "parquet"])
def test_a_prompt_that_needs_no_column_is_asked_for_every_row(tmp_path: Path, rows: Any) -> None:
    spool = spool_of(tmp_path, rows, prompt="hi", sampling={"temperature": 1})
    assert [spool.request(row).token_ids for row in range(len(spool))] == [[104, 105]] * 3
    assert len(set(ids_of(spool))) == 3


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
    assert spool.prompts.to_pylist() == [b"\0\0\0a", None, None, None, None, b"\0\0\0b"]


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
