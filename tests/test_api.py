"""annotate() and submit(): the same type comes back, with the answers beside the rows."""

from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import pyarrow as pa
import pytest
import yaml

import batchrunner
from batchrunner.errors import JobFileError, UsageError
from tests.jobs import write_jsonl

ROWS: list[dict[str, Any]] = [{"text": "good"}, {"text": None}, {"text": "bad", "n": 3}, {"text": "good"}]


def annotate(dataset: Any, model: Path, **options: Any) -> Any:
    defaults: dict[str, Any] = {
        "prompt": "Say: {{ text }}",
        "sampling": {"max_tokens": 5},
        "engine": {"kv_tokens": 512},
    }
    return batchrunner.annotate(dataset, model=model, **(defaults | options))


def test_every_kind_of_data_set_comes_back_as_it_is(chat_model: Path) -> None:
    rows = annotate(ROWS, chat_model)
    assert [{k: row[k] for k in original} for row, original in zip(rows, ROWS, strict=True)] == ROWS
    expected = [row["response"] for row in rows]
    assert expected[0] == expected[3] != expected[2]
    assert expected[1] is None
    assert rows[1]["_batchrun"]["error_type"] == "null_value"

    table = annotate(pa.Table.from_pylist(ROWS), chat_model)
    assert isinstance(table, pa.Table)
    assert table["response"].to_pylist() == expected

    frame = pd.DataFrame(ROWS, index=["a", "b", "c", "d"])
    annotated = annotate(frame, chat_model)
    assert isinstance(annotated, pd.DataFrame)
    assert list(annotated.index) == ["a", "b", "c", "d"]
    assert annotated["response"].isna().tolist() == [False, True, False, False]
    assert annotated["response"].tolist()[::2] == expected[::2]

    dataset = annotate(datasets.Dataset.from_list(ROWS), chat_model, column="answer")
    assert isinstance(dataset, datasets.Dataset)
    assert dataset.column_names == ["text", "n", "answer", "_batchrun"] or dataset["answer"] == expected
    assert list(dataset["answer"]) == expected


def test_a_filtered_dataset_is_annotated_as_it_reads(chat_model: Path) -> None:
    dataset = datasets.Dataset.from_list([{"text": f"t{i}"} for i in range(6)]).filter(lambda row: row["text"] != "t2")
    shuffled = dataset.shuffle(seed=3)
    annotated = annotate(shuffled, chat_model)
    assert list(annotated["text"]) == list(shuffled["text"])
    assert len(annotated) == 5


def test_values_that_fit_no_column_type_are_the_row_s_own_matter(chat_model: Path) -> None:
    rows = annotate([{"text": "a"}, {"text": None}, {"text": 3}, {"text": ["x"]}], chat_model, prompt="{{ text }}")
    assert [row["_batchrun"]["error_type"] for row in rows] == [None, "null_value", "not_text", "not_text"]
    assert [row["text"] for row in rows] == ["a", None, 3, ["x"]]
    with pytest.raises(UsageError, match="is not JSON"):
        annotate([{"text": b"bytes"}], chat_model)
    with pytest.raises(UsageError, match="give one of them: train"):
        annotate(datasets.DatasetDict(train=datasets.Dataset.from_list(ROWS)), chat_model)


def test_messages_and_sampling_objects(chat_model: Path) -> None:
    messages = [{"role": "user", "content": "{{ text }}"}]
    sampling = batchrunner.SamplingParams(max_tokens=3)
    rows = annotate(ROWS[:1], chat_model, prompt=None, messages=messages, sampling=sampling)
    assert rows[0]["_batchrun"]["num_output_tokens"] <= 3


def test_with_an_output_the_work_is_kept(chat_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = annotate(ROWS, chat_model, output=tmp_path / "kept")
    monkeypatch.setattr("batchrunner.run.runner.find_model", None)  # would fail if it were asked for
    assert annotate(ROWS, chat_model, output=tmp_path / "kept") == first


def test_another_data_set_type_is_refused_by_name(chat_model: Path) -> None:
    with pytest.raises(UsageError, match=r"builtins\.tuple"):
        annotate((1, 2), chat_model)


def test_a_mistake_in_a_call_is_named(chat_model: Path) -> None:
    with pytest.raises(JobFileError, match="did you mean 'max_tokens'"):
        annotate(ROWS, chat_model, sampling={"max_token": 5})
    with pytest.raises(JobFileError, match="give either prompt or messages"):
        annotate(ROWS, chat_model, prompt=None)


def test_submit_runs_a_job_file_with_overrides(chat_model: Path, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in.jsonl", [{"text": "a"}])
    job = {"name": "j", "input": "in.jsonl", "output": "out", "prompt": "{{ text }}", "sampling": {"max_tokens": 9}}
    (tmp_path / "jobs.yaml").write_text(yaml.safe_dump({"model": str(chat_model), "jobs": [job]}))
    summary = batchrunner.submit(tmp_path / "jobs.yaml", {"jobs.j.sampling.max_tokens": 2, "engine.kv_tokens": 256})
    assert isinstance(summary, batchrunner.Summary)
    assert summary.jobs[0].num_output_tokens <= 2
