"""Nothing of an old spool is used with other inputs, another template or another tokenizer."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batchrunner.data.spool import spool as spool_module
from batchrunner.data.spool.folder import SpoolFolder
from batchrunner.errors import DataError
from tests.data.spools import LetterEncoder, encoded_again, job_over, spool_of, spooled, texts_of

ROWS: list[dict[str, Any]] = [{"t": letter, "n": number} for number, letter in enumerate("abcdefgh")]
TEXTS = list("abcdefgh")


@pytest.mark.parametrize(
    "change",
    [
        {"prompt": "{{ t }}!"},
        {"prompt": {"column": "t"}},
        {"messages": [{"role": "user", "content": "{{ t }}"}], "prompt": None},
        {"sampling": {"max_tokens": 5}},
        {"priority": 3},
        {"fields": ["t"], "prompt": "{{ fields }}"},
        {"on_error": "stop"},
    ],
    ids=str,
)
def test_a_changed_job_is_spooled_anew(tmp_path: Path, change: dict[str, Any]) -> None:
    spool_of(tmp_path, ROWS)
    encoder = LetterEncoder()
    spooled(job_over(tmp_path, None, **change), tmp_path, encoder)
    assert len(encoder.encoded) == 8


def test_a_changed_tokenizer_is_asked_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool_of(tmp_path, ROWS)
    monkeypatch.setattr(LetterEncoder, "identity", "other letters")
    assert encoded_again(job_over(tmp_path, None), tmp_path, TEXTS) == TEXTS


def test_a_changed_file_is_read_anew(tmp_path: Path) -> None:
    spool_of(tmp_path, ROWS)
    swapped = [{"t": letter, "n": 0} for letter in "hgfedcba"]
    job = job_over(tmp_path, swapped)  # of the same size
    os.utime(tmp_path / "in.jsonl", ns=(1, 1))
    assert encoded_again(job, tmp_path, TEXTS[::-1]) == TEXTS[::-1]


def test_an_added_file_is_seen(tmp_path: Path) -> None:
    spool_of(tmp_path, ROWS, input=str(tmp_path / "*.jsonl"))
    (tmp_path / "more.jsonl").write_text('{"t": "x"}\n')
    job = job_over(tmp_path, None, input=str(tmp_path / "*.jsonl"))
    assert encoded_again(job, tmp_path, [*TEXTS, "x"]) == [*TEXTS, "x"]


def test_files_in_another_order_are_other_rows(tmp_path: Path) -> None:
    names = []
    for letter in "ab":
        names.append(str(tmp_path / f"{letter}.jsonl"))
        Path(names[-1]).write_text(json.dumps({"t": letter}) + "\n")
        os.utime(names[-1], ns=(1, 1))
    assert texts_of(spool_of(tmp_path, None, input=names)) == ["a", "b"]
    assert encoded_again(job_over(tmp_path, None, input=names[::-1]), tmp_path, ["b", "a"]) == ["b", "a"]


def test_another_order_of_the_fields_is_spooled_anew(tmp_path: Path) -> None:
    job = job_over(tmp_path, [{"t": "x", "n": 1}], prompt="{{ fields }}", fields=["t", "n"])
    found = []
    for orders in ([[0, 1]], [[1, 0]], None):
        field_orders = None if orders is None else np.array(orders, dtype=np.uint8)
        spool = spool_module.prepare_spool(
            job, LetterEncoder(), tmp_path / "spool", lambda num_rows: None, field_orders
        )
        found += texts_of(spool)
    assert found == ['{"t": "x", "n": 1}', '{"n": 1, "t": "x"}', '{"t": "x", "n": 1}']


@pytest.mark.parametrize("change", [{"column": "answer"}, {"columns": ["n"]}], ids=str)
def test_other_columns_of_the_output_need_no_tokenising(tmp_path: Path, change: dict[str, Any]) -> None:
    spool_of(tmp_path, ROWS)
    job = job_over(tmp_path, None, **change)
    assert encoded_again(job, tmp_path, TEXTS) == []
    assert spooled(job, tmp_path).columns.schema.names == change.get("columns", ["t", "n"])
    with pytest.raises(DataError, match="the input has a column 't' already"):
        spooled(job_over(tmp_path, None, column="t"), tmp_path)


def test_a_file_that_changes_before_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(SpoolFolder):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            os.utime(tmp_path / "in.jsonl", ns=(1, 1))

    monkeypatch.setattr(spool_module, "SpoolFolder", Slow)
    with pytest.raises(DataError, match="an input file has changed while the job ran"):
        spool_of(tmp_path, ROWS)
    monkeypatch.undo()
    assert encoded_again(job_over(tmp_path, None), tmp_path, TEXTS) == TEXTS
