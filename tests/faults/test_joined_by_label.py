"""Answers are joined to rows by position, never by a label that rows may share."""

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import batchrunner
from batchrunner.errors import UsageError

TEXTS = ["one", "two", "three", "four"]
INDEXES: dict[str, Any] = {
    "repeated": [7, 7, 7, 7],
    "shuffled": [3, 0, 2, 1],
    "null": [None, 1.0, None, 2.0],
    "dates": pd.to_datetime(["2026-01-01", "2026-01-01", "2025-01-01", "2025-01-02"]),
    "zones": pd.to_datetime(["2026-01-01", "2026-01-01", "2025-01-01", "2025-01-02"]).tz_localize("Europe/Paris"),
    "two levels": pd.MultiIndex.from_tuples([("a", 1), ("a", 1), ("b", 1), ("a", 2)], names=["x", "y"]),
    "categories": pd.CategoricalIndex(["b", "a", "b", "a"]),
    "named like a column": pd.Index([4, 3, 2, 1], name="text"),
}


def annotate(dataset: Any, model: Path) -> Any:
    sampling = {"max_tokens": 4, "ignore_eos": True}
    return batchrunner.annotate(
        dataset, model=model, prompt="Say: {{ text }}", sampling=sampling, engine={"kv_tokens": 512}
    )


@pytest.fixture(scope="module")
def expected(chat_model: Path) -> list[str]:
    answers = [row["response"] for row in annotate([{"text": text} for text in TEXTS], chat_model)]
    assert len(set(answers)) == len(TEXTS), "answers that are mixed up show"
    return answers


@pytest.mark.parametrize("name", INDEXES)
def test_a_frame_with_any_index_has_its_own_answers(name: str, expected: list[str], chat_model: Path) -> None:
    frame = pd.DataFrame({"text": TEXTS, "n": range(4)}, index=INDEXES[name])
    annotated = annotate(frame, chat_model)
    assert annotated["response"].tolist() == expected
    assert annotated["text"].tolist() == TEXTS
    pd.testing.assert_index_equal(annotated.index, frame.index)
    assert list(annotated.columns) == ["text", "n", "response", "_batchrun"]
    assert list(frame.columns) == ["text", "n"], "the caller's frame stays as it is"


def test_columns_that_share_a_name_are_refused(chat_model: Path) -> None:
    frame = pd.DataFrame([["a", "b"]], columns=["text", "text"])
    with pytest.raises(UsageError, match="more than one column is called 'text'; give each a name of its own"):
        annotate(frame, chat_model)
    with pytest.raises(UsageError, match="more than one column is called 'text'"):
        annotate(pa.table([["a"], ["b"]], names=["text", "text"]), chat_model)
    with pytest.raises(UsageError, match="more than one column is called '1'"):
        annotate(pd.DataFrame([["a", "b", "c"]], columns=["text", 1, "1"]), chat_model)
