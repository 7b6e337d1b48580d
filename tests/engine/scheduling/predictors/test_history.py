"""Lengths predicted from those of earlier answers."""

import json
from collections.abc import Sequence
from math import ceil

from hypothesis import given, settings
from hypothesis import strategies as st

from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.predictors.history import MIN_OBSERVATIONS, History
from batchrunner.engine.scheduling.predictors.predictor import LengthPredictor
from tests.engine.scheduling.predictors.predictor_requests import ended, request


def observe(predictor: LengthPredictor, lengths: Sequence[int], *, prompt: int = 100, group: str = "") -> None:
    for length in lengths:
        predictor.observe(ended(length, prompt=prompt, group=group))


def test_history_needs_enough_observations_and_asks_the_finest_class_that_has_them() -> None:
    history = History()
    assert history.predict(request(group="a")) == 1000
    observe(history, [10] * MIN_OBSERVATIONS, prompt=100, group="a")
    assert history.predict(request(group="b")) == 10, "all requests"
    observe(history, [20] * (MIN_OBSERVATIONS - 1), prompt=100, group="b")
    assert history.predict(request(group="b")) == 10
    observe(history, [20], prompt=10, group="b")
    assert history.predict(request(group="b", prompt=5000)) == 20, "the group"
    assert history.predict(request(group="b", prompt=100)) == 20
    observe(history, [30] * MIN_OBSERVATIONS, prompt=64, group="b")
    assert history.predict(request(group="b", prompt=127)) == 30, "its prompts of 64 … 127 tokens"
    assert history.predict(request(group="b", prompt=128)) == 20
    assert history.predict(request(group="b", prompt=63)) == 20
    assert list(history.lengths()) == ["64:a", "*:a", "*", "64:b", "*:b", "8:b"]


def test_history_forgets_what_is_long_ago() -> None:
    history = History(window=10)
    observe(history, [500] * 10)
    observe(history, [5] * 10)
    assert history.predict(request()) == 5
    assert history.lengths()["*"] == [5] * 10


def test_history_counts_answers_cut_at_max_tokens_and_no_errors() -> None:
    history = History()
    for _ in range(MIN_OBSERVATIONS):
        history.observe(ended(0, reason="error"))
    assert history.predict(request()) == 1000
    for _ in range(MIN_OBSERVATIONS):
        history.observe(ended(64, reason="length"))
    assert history.predict(request()) == 64


def test_history_of_a_request_that_goes_on_is_of_those_that_went_on() -> None:
    history = History()
    observe(history, [10] * 6 + [200] * 4)
    assert history.predict(request()) == 10
    assert history.predict(request(output=9)) == 10
    assert history.predict(request(output=10)) == 200
    assert history.predict(request(output=200)) == 400, "none went on so long"


def test_history_goes_on_from_an_earlier_run() -> None:
    history = History(quantile=0.7)
    for i in range(40):
        observe(history, [i], prompt=i * 10 + 1, group="a: *" if i % 2 else "")
    saved = json.loads(json.dumps(history.lengths()))
    loaded = History(quantile=0.7, lengths=saved)
    assert loaded.lengths() == history.lengths()
    for item in [
        request(prompt=p, group=g, output=o) for p in (1, 70, 300) for g in ("a: *", "", "new") for o in (0, 20)
    ]:
        assert loaded.predict(item) == history.predict(item)
    observe(loaded, [7], group="new")
    assert loaded.lengths()["*"] == [*history.lengths()["*"], 7]


class NaiveHistory:
    """Everything remembered, sorted anew for every question."""

    def __init__(self, quantile: float, window: int) -> None:
        self.quantile, self.window, self.seen = quantile, window, list[Request]()

    def predict(self, item: Request) -> float:
        def bucket(other: Request) -> int:
            return len(f"{other.num_prompt_tokens:b}")

        for same in (
            lambda other: other.group == item.group and bucket(other) == bucket(item),
            lambda other: other.group == item.group,
            lambda other: True,
        ):
            lengths = [other.num_output_tokens for other in self.seen if same(other)][-self.window :]
            if len(lengths) >= MIN_OBSERVATIONS:
                longer = sorted(x for x in lengths if x > item.num_output_tokens)
                if longer:
                    return min(longer[max(0, ceil(self.quantile * len(longer)) - 1)], item.max_output_tokens)
                estimate = max(lengths)
                while estimate <= item.num_output_tokens:
                    estimate *= 2
                return min(estimate, item.max_output_tokens)
        return item.max_output_tokens


shapes = st.tuples(st.sampled_from(["a", "b"]), st.integers(1, 20), st.integers(1, 60))


@settings(max_examples=150, deadline=None)
@given(
    observed=st.lists(shapes, max_size=80),
    asked=st.lists(shapes, max_size=8),
    quantile=st.sampled_from([0.0, 0.1, 0.5, 0.7, 0.9, 1.0]),
    window=st.integers(MIN_OBSERVATIONS, 20),
)
def test_history_predicts_what_a_naive_one_does(
    observed: list[tuple[str, int, int]], asked: list[tuple[str, int, int]], quantile: float, window: int
) -> None:
    history, naive = History(quantile, window=window), NaiveHistory(quantile, window)
    questions = [
        request(group=group, prompt=prompt, output=output - 1, max_tokens=60) for group, prompt, output in asked
    ]
    for number, (group, prompt, output) in enumerate(observed):
        item = ended(output, prompt=prompt, group=group)
        history.observe(item)
        naive.seen.append(item)
        if number % 16 == 0:
            assert [history.predict(q) for q in questions] == [naive.predict(q) for q in questions]
    assert [history.predict(q) for q in questions] == [naive.predict(q) for q in questions]
    assert all(len(lengths) <= window for lengths in history.lengths().values())
