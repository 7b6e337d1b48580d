"""The ids of a spool's requests: equal where the same is asked, and the same in every run."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrunner.data.input import rows as rows_module
from batchrunner.data.spool import writer as spool_writer
from batchrunner.identity import question_digest, request_id
from batchrunner.spec.sampling import SamplingParams
from tests.data.spools import MODEL, ids_of, spool_of


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
    question = question_digest([97], SamplingParams(temperature=1))
    assert first == request_id(MODEL, question, 0)
    assert second not in (first, request_id(MODEL, question, 1))


def test_equal_sampled_rows_get_the_ids_of_their_occurrences(tmp_path: Path) -> None:
    texts = ["a", "b", "a", None, "a", "b", None]
    spool = spool_of(tmp_path, [{"t": text} for text in texts], sampling={"temperature": 1})
    params = SamplingParams(temperature=1)
    asked = [("a", 0), ("b", 0), ("a", 1), None, ("a", 2), ("b", 1), None]
    assert ids_of(spool) == [
        None if it is None else request_id(MODEL, question_digest([ord(it[0])], params), it[1]) for it in asked
    ]


def test_greedy_rows_share_an_id_also_among_sampled_ones(tmp_path: Path) -> None:
    rows = [{"t": "a", "temp": temp} for temp in (0, 1, 0, 1, None)]
    ids = ids_of(spool_of(tmp_path, rows, sampling={"temperature": {"column": "temp"}}))
    assert ids[0] == ids[2] == ids[4]
    question = question_digest([97], SamplingParams(temperature=1))
    assert ids[1::2] == [request_id(MODEL, question, 0), request_id(MODEL, question, 1)]
    assert len(set(ids)) == 3


@pytest.mark.parametrize("batch_rows", [1, 2, 1024])
def test_ids_do_not_depend_on_batches_and_are_the_same_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_rows: int
) -> None:
    rows = [{"t": text, "s": seed} for seed in (1, 2) for text in ("a", "b", "a", "", "a")]
    sampling = {"temperature": 1, "seed": {"column": "s"}}
    expected = ids_of(spool_of(tmp_path, rows, sampling=sampling))
    monkeypatch.setattr(rows_module, "BATCH_ROWS", batch_rows)
    monkeypatch.setattr(spool_writer, "BATCH_ROWS", batch_rows)
    again = tmp_path / "again"
    again.mkdir()
    assert ids_of(spool_of(again, rows, sampling=sampling)) == expected


@settings(deadline=None)
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


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([None, "a", "b"]), st.sampled_from([0, 1])), max_size=12), st.text(max_size=4)
)
def test_the_ids_are_those_of_the_questions_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, asked: list[tuple[str | None, int]], fingerprint: str
) -> None:
    rows = [{"t": text, "temp": temperature} for text, temperature in asked]
    spool = spool_of(tmp_path_factory.mktemp("spool"), rows, sampling={"temperature": {"column": "temp"}})
    occurrences: Counter[tuple[str, int]] = Counter()
    expected: list[bytes | None] = []
    for text, temperature in asked:
        if text is None:
            expected.append(None)
            continue
        question = question_digest([ord(text)], SamplingParams(temperature=temperature))
        expected.append(request_id(fingerprint, question, occurrences[text, temperature]))
        occurrences[text, temperature] += temperature
    assert ids_of(spool.for_model(fingerprint)) == expected


def test_another_model_has_other_ids_for_the_same_rows(tmp_path: Path) -> None:
    spool = spool_of(tmp_path, [{"t": "a"}, {"t": None}, {"t": "b"}])
    first, second = ids_of(spool.for_model("first")), ids_of(spool.for_model("second"))
    assert first[1] is second[1] is None
    assert len({*first, *second}) == 5
    assert spool.request(0).token_ids == spool.for_model("first").request(0).token_ids
    assert spool.for_model("first").request(0).request_id == first[0]
