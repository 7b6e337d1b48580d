"""How long will an answer be? Every predictor alone, and what each is worth to shortest-job-first."""

import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from conftest import build_tiny_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrunner import SamplingParams
from batchrunner.engine.predictors.calibration import Calibration
from batchrunner.engine.predictors.history import MIN_OBSERVATIONS, History
from batchrunner.engine.predictors.kept_estimates import KeptEstimates
from batchrunner.engine.predictors.max_tokens import MaxTokens
from batchrunner.engine.predictors.oracle import Oracle
from batchrunner.engine.predictors.predictor import LengthPredictor, outlived
from batchrunner.engine.predictors.signals import NUM_CHARS, Signals, guessed_tokens
from batchrunner.engine.predictors.small_model import SmallModel
from batchrunner.engine.predictors.small_model_engine import SmallModelAnswers
from batchrunner.engine.request import FinishReason, Request
from batchrunner.errors import UsageError


def request(
    name: str = "r",
    *,
    prompt: int = 100,
    output: int = 0,
    group: str = "",
    max_tokens: int = 1000,
    context: int = 10**6,
    ignore_eos: bool = False,
    stop: tuple[str, ...] = (),
) -> Request:
    return Request(
        name,
        [7] * (prompt + output),
        prompt,
        SamplingParams(max_tokens=max_tokens, ignore_eos=ignore_eos, stop=stop),
        max_total_tokens=context,
        group=group,
    )


def ended(
    output: int, *, reason: FinishReason = "stop", name: str = "r", prompt: int = 100, group: str = ""
) -> Request:
    item = request(name, prompt=prompt, output=output, group=group)
    item.finish_reason = reason
    return item


def observe(predictor: LengthPredictor, lengths: Sequence[int], *, prompt: int = 100, group: str = "") -> None:
    for length in lengths:
        predictor.observe(ended(length, prompt=prompt, group=group))


# Every predictor


EVERY: list[Callable[[float], LengthPredictor]] = [
    lambda tokens: Oracle({"r": int(tokens)}),
    lambda tokens: SmallModel(lambda requests: [int(tokens)] * len(requests)),
    lambda tokens: Signals(lambda request: f"in {round(tokens * 3 / 4)} words"),
    lambda tokens: History(lengths={"*": [int(tokens)] * MIN_OBSERVATIONS}),
]


@pytest.mark.parametrize("build", EVERY)
def test_a_prediction_lies_between_what_there_is_and_what_may_come(build: Callable[[float], LengthPredictor]) -> None:
    predictor = build(40)
    assert predictor.predict(request()) == 40
    assert predictor.predict(request(max_tokens=30)) == 30
    assert predictor.predict(request(context=120)) == 20
    assert predictor.predict(request(output=39)) == 40
    assert predictor.predict(request(output=40)) == 80, "it has not ended at 40; as long again"
    assert predictor.predict(request(output=170)) == 320
    assert predictor.predict(request(output=999)) == 1000
    assert build(0).predict(request()) == 1


def test_an_estimate_of_nothing_is_one_token_and_a_prompt_without_room_too() -> None:
    assert outlived(0.0, request()) == 1
    assert outlived(-3.0, request(output=5)) == 8
    assert outlived(50.0, request(prompt=100, context=90)) == 1
    assert MaxTokens().predict(request(prompt=100, context=90)) == 1


def test_max_tokens_are_those_of_the_parameters_and_of_the_context() -> None:
    assert MaxTokens().predict(request(max_tokens=77)) == 77
    assert MaxTokens().predict(request(max_tokens=77, context=130)) == 30


def test_the_oracle_knows_its_requests_and_no_others() -> None:
    oracle = Oracle({"a": 3, "b": 9})
    assert [oracle.predict(request(name)) for name in "ab"] == [3, 9]
    with pytest.raises(KeyError):
        oracle.predict(request("c"))


def test_predictors_need_no_torch() -> None:
    names = ["history", "max_tokens", "oracle", "predictor", "signals", "small_model", "small_model_engine"]
    code = "".join(f"import batchrunner.engine.predictors.{name}\n" for name in names)
    code += "import sys; assert not {'torch', 'transformers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# History


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


# Signals


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Is it raining? Answer yes or no.", 3),
        ("True/false: cats bark.", 3),
        ("In one word, what colour is the sky?", 4 / 3),
        ("Describe her in a word.", 4 / 3),
        ("Reply with only the label.", 4),
        ("Rate the review. Answer with a number.", 4),
        ("Summarize in one sentence.", 25),
        ("Write a short sentence about rain.", 25),
        ("Answer in two to three sentences.", 75),
        ("Explain gravity in 50 words or less.", 200 / 3),
        ("Write a 500-word essay on war.", 2000 / 3),
        ("Write an essay of 1,000 words.", 4000 / 3),
        ("Write twelve sentences about rain.", 300),
        ("Describe it in 4 short paragraphs.", 400),
        ("Give me 5 bullet points.", 100),
        ("Use bullet points.", 100),
        ("Name three rivers.", 24),
        ("List 5 reasons to run.", 100),
        ("List the top ten reasons, each in one sentence.", 200),
        ("Give me twenty creative names for a dog", 400),
        ("Extract the fields and return valid JSON.", 80),
        ("Summarize the following article.", 80),
        ("SUMMARISE THIS\nBRIEFLY", 40),
        ("Write an essay about rain.", 600),
        ("Explain in detail how rain forms.", 400),
        ("Give a detailed answer.", 400),
        ("Translate into French: good morning", 105),
        ("Write a Python function that sorts.", 250),
        ("How many legs has a spider?", 20),
        ("hello", 120),
        ("", 120),
    ],
)
def test_the_words_of_a_prompt_tell_the_length(text: str, tokens: float) -> None:
    assert guessed_tokens(text, num_prompt_tokens=100) == pytest.approx(tokens)


def test_no_words_are_one_token() -> None:
    assert guessed_tokens("Answer in 0 words.", 100) == 1


def test_a_translation_is_as_long_as_its_text() -> None:
    assert guessed_tokens("Translate this", 2000) == guessed_tokens("Translate this", 100) + 1900


def test_the_strongest_signal_counts_wherever_it_stands() -> None:
    document = "He would explain in detail how to write a story, and summarize it. " * 3
    for text in (f"Answer in one word. {document}", f"{document} Answer in one word."):
        assert guessed_tokens(text, 100) == pytest.approx(4 / 3)
    assert guessed_tokens("Answer yes or no, but think step by step.", 100) == 250, "reasoning comes before any answer"


def test_of_two_like_signals_the_last_counts() -> None:
    assert guessed_tokens("It said so in 20 sentences. Say it in 2 sentences.", 100) == 50


def test_no_signal_crosses_the_end_of_a_sentence() -> None:
    assert guessed_tokens("Here is the list. Five dogs bark.", 100) == 120
    assert guessed_tokens("He was single. Words fail me.", 100) == 120


def test_both_ends_of_a_long_prompt_are_read_and_nothing_between() -> None:
    filler = "lorem ipsum " * NUM_CHARS
    assert guessed_tokens(f"Yes or no? {filler}", 100) == 3
    assert guessed_tokens(f"{filler} Yes or no?", 100) == 3
    assert guessed_tokens(f"{filler} Yes or no? {filler}", 100) == 120
    head = "lorem " * NUM_CHARS
    assert guessed_tokens(head[: NUM_CHARS - 4] + " yes" + head + "or no " + "x " * ((NUM_CHARS - 6) // 2), 100) == 120


@pytest.mark.parametrize("text", ["a", " ", "9", "1,", "list one ", "in a ", "write a a a a ", "yes or ", "\n"])
def test_a_prompt_of_a_megabyte_takes_milliseconds(text: str) -> None:
    long = text * (2**20 // len(text))
    begin = time.perf_counter()
    guessed_tokens(long, 100)
    assert time.perf_counter() - begin < 0.25  # 0.3 ms


def test_signals_learn_how_long_the_models_answers_are() -> None:
    texts = {"wordy": "Summarize.", "terse": "Name two."}
    signals = Signals(lambda item: texts[item.group])
    assert signals.predict(request("w", group="wordy")) == 80
    assert signals.predict(request("t", group="terse")) == 16
    for number in range(60):
        signals.observe(ended(240, name=f"w{number}", group="wordy"))
        signals.observe(ended(4, name=f"t{number}", group="terse"))
    assert signals.predict(request("w", group="wordy")) == pytest.approx(240, rel=0.15)
    assert signals.predict(request("t", group="terse")) == pytest.approx(4, rel=0.15)


def test_signals_learn_nothing_from_errors() -> None:
    signals = Signals(lambda item: "Summarize.")
    signals.observe(ended(1, reason="error"))
    assert signals.predict(request()) == 80


def test_signals_read_a_prompt_once() -> None:
    asked = []
    signals = Signals(lambda item: asked.append(item.request_id) or "Summarize.")
    for _ in range(3):
        signals.predict(request("a"))
    signals.observe(ended(80, name="a"))
    assert asked == ["a"]
    signals.predict(request("a"))
    assert asked == ["a", "a"], "an ended request is forgotten"


def test_calibration_is_of_the_group_and_of_all_for_a_new_one() -> None:
    calibration = Calibration()
    assert calibration.ratio("a") == 1
    for _ in range(50):
        calibration.observe("a", guessed=10, observed=40)
    assert calibration.ratio("a") == pytest.approx(4, rel=0.1)
    assert calibration.ratio("new") == pytest.approx(4, rel=0.1)
    calibration.observe("b", guessed=10, observed=1)
    assert calibration.ratio("b") == pytest.approx((4 * 0.1) ** 0.5, rel=0.1), "one answer does not decide"
    for _ in range(100):
        calibration.observe("a", guessed=10, observed=5)
    assert calibration.ratio("a") == pytest.approx(0.5, rel=0.1), "it follows"


def test_calibration_lets_twice_and_half_cancel_out() -> None:
    calibration = Calibration()
    for _ in range(200):
        calibration.observe("a", guessed=10, observed=20)
        calibration.observe("a", guessed=10, observed=5)
    assert calibration.ratio("a") == pytest.approx(1, rel=0.1)


# Small model


class CountingModel:
    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def __call__(self, requests: Sequence[Request]) -> list[int]:
        self.asked.append([item.request_id for item in requests])
        return [len(item.request_id) for item in requests]


def test_a_small_model_is_asked_once_and_for_all_together() -> None:
    model = CountingModel()
    predictor = SmallModel(model)
    predictor.prepare([request("a"), request("bb"), request("a")])
    predictor.prepare([request("bb"), request("ccc")])
    predictor.prepare([request("ccc")])
    predictor.prepare([])
    assert [predictor.predict(request(name)) for name in ("ccc", "a", "bb")] == [3, 1, 2]
    assert model.asked == [["a", "bb"], ["ccc"]]


def test_a_small_model_is_asked_for_one_that_it_was_not_told_of() -> None:
    model = CountingModel()
    predictor = SmallModel(model)
    assert [predictor.predict(request("dddd")) for _ in range(2)] == [4, 4]
    assert model.asked == [["dddd"]]


def test_a_small_models_predictions_are_kept_until_the_end_and_not_longer() -> None:
    model = CountingModel()
    predictor = SmallModel(model)
    predictor.prepare([request("a"), request("b")])
    predictor.observe(ended(5, name="a"))
    predictor.observe(ended(5, name="unknown"))
    predictor.prepare([request("a"), request("b")])
    assert model.asked == [["a", "b"], ["a"]]


def test_a_small_model_must_answer_all() -> None:
    with pytest.raises(ValueError, match="shorter"):
        SmallModel(lambda requests: [1]).prepare([request("a"), request("b")])


def test_a_small_models_predictions_are_bounded_in_number() -> None:
    model = CountingModel()
    predictor = SmallModel(model, capacity=2)
    predictor.prepare([request(name) for name in ("a", "bb", "ccc")])
    assert [predictor.predict(request(name)) for name in ("ccc", "bb", "a")] == [3, 2, 1]
    assert model.asked == [["a", "bb", "ccc"], ["a"]]


def test_keeping_one_anew_loses_no_other() -> None:
    kept = KeptEstimates(capacity=2)
    for name, tokens in (("a", 1), ("b", 2), ("b", 3)):
        kept.keep(request(name), tokens)
    assert [kept[request(name)] for name in "ab"] == [1, 3]
    kept.forget(request("a"))
    assert request("a") not in kept


# Small model's engine

TEXTS = ["hello", "prompt number two, a longer one", "x", "y", "another"]


def text_of(item: Request) -> str:
    return item.request_id


@pytest.fixture(scope="module")
def ending_model(chat_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every tenth token ends an answer, so that answers are of all lengths."""
    folder = tmp_path_factory.mktemp("ending") / "model"
    shutil.copytree(chat_model, folder)
    config = json.loads((folder / "generation_config.json").read_text())
    config["eos_token_id"] = list(range(2, 259, 10))
    (folder / "generation_config.json").write_text(json.dumps(config))
    return folder


def lengths_by_engine(model: Path, prompts: Sequence[Any], sampling: SamplingParams) -> list[int]:
    from batchrunner.engine.engine import Engine

    with Engine(str(model), kv_tokens=2048) as engine:
        assert engine.tokenizer is not None
        if engine.tokenizer.has_chat_template:
            prompts = [engine.tokenizer.encode_messages([{"role": "user", "content": text}]) for text in prompts]
        return [len(answer.token_ids) for answer in engine.generate(prompts, sampling)]


def test_the_small_models_answers_are_those_of_its_engine(ending_model: Path) -> None:
    expected = lengths_by_engine(ending_model, TEXTS, SamplingParams(max_tokens=40))
    assert len(set(expected)) > 2, "the answers are of several lengths"
    answers = SmallModelAnswers(str(ending_model), text_of, max_tokens=40, kv_tokens=2048)
    assert answers([request(text) for text in TEXTS]) == expected
    answers.close()
    assert answers([request(TEXTS[0])]) == expected[:1], "opened again"
    answers.close()
    answers.close()


def test_the_small_model_ends_where_the_request_would(ending_model: Path, chat_model: Path) -> None:
    answers = SmallModelAnswers(str(ending_model), text_of, max_tokens=24, kv_tokens=2048)
    ended_at = answers([request(text) for text in TEXTS])
    assert min(ended_at) < 24
    assert answers([request(text, ignore_eos=True) for text in TEXTS]) == [24] * len(TEXTS)
    assert answers([request(text, ignore_eos=True, max_tokens=6) for text in TEXTS]) == [6] * len(TEXTS)
    stop = ("a", "e", "i", "o", "u", "A", "E", "I", "O", "U", *map(chr, range(0x30, 0x3A)))
    sampling = SamplingParams(max_tokens=200, stop=stop)
    expected = lengths_by_engine(chat_model, TEXTS, sampling)
    assert min(expected) < 200, "some answer has a stop string"
    answers.close()
    answers = SmallModelAnswers(str(chat_model), text_of, max_tokens=200, kv_tokens=2048)
    assert answers([request(text, stop=stop) for text in TEXTS]) == expected
    answers.close()


def test_rows_the_small_model_cannot_answer_are_predicted_at_their_maximum(chat_model: Path) -> None:
    answers = SmallModelAnswers(str(chat_model), text_of, max_tokens=100, kv_tokens=2048)
    too_long = request("x" * 600, max_tokens=800)
    no_room = request("x" * 480, max_tokens=800, ignore_eos=True)  # the context is 512 tokens
    fine = request("hello", max_tokens=800)
    lengths = answers([too_long, fine, no_room])
    assert (lengths[0], lengths[2]) == (800, 800)
    assert lengths[1] <= 100
    answers.close()


@pytest.mark.parametrize("template", [None, "{{ raise_exception('no users here') }}"])
def test_a_small_model_whose_chat_template_does_not_serve(
    ending_model: Path, tmp_path: Path, template: str | None
) -> None:
    """Without one it goes on from the text; where it refuses the text there is no answer."""
    folder = tmp_path / "model"
    shutil.copytree(ending_model, folder)
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    build_tiny_tokenizer(folder, template)
    answers = SmallModelAnswers(str(folder), text_of, max_tokens=40, kv_tokens=2048)
    lengths = answers([request(text, max_tokens=800) for text in TEXTS])
    answers.close()
    if template is None:
        assert lengths == lengths_by_engine(folder, TEXTS, SamplingParams(max_tokens=40))
    else:
        assert lengths == [800] * len(TEXTS)


def test_a_small_model_needs_a_tokenizer(tiny_llama: Path) -> None:
    with pytest.raises(UsageError, match="no tokenizer"):
        SmallModelAnswers(str(tiny_llama), text_of, kv_tokens=512)([request("hello")])


# What it is worth


def made_up_mix(seed: int) -> tuple[list[Request], dict[str, int], dict[str, str]]:
    """Three jobs in one queue, their rows mixed: labels, summaries (longer for longer texts) and essays."""
    rng = random.Random(seed)
    requests, lengths, texts = [], dict[str, int](), dict[str, str]()
    for number in range(300):
        name, group = str(number), rng.choice(["labels", "summaries", "essays"])
        prompt = rng.randint(50, 2000)
        if group == "labels":
            length, text = rng.uniform(1, 8), "Is the review positive? Answer yes or no."
        elif group == "summaries":
            length, text = prompt * rng.lognormvariate(-2, 0.4), "Summarize the text."
        else:
            length, text = rng.lognormvariate(6, 0.5), "Write an essay about the text."
        requests.append(request(name, prompt=prompt, group=group))
        lengths[name], texts[name] = min(1000, max(1, round(length))), text
    return requests, lengths, texts


def mean_wait(predictor: LengthPredictor, waiting: list[Request], lengths: dict[str, int]) -> float:
    """One server, all are there at the start; the shortest predicted is next, and its end is observed."""
    waiting, clock, waited = list(waiting), 0, 0
    predictor.prepare(waiting)
    num_requests = len(waiting)
    while waiting:
        shortest = min(waiting, key=predictor.predict)
        waiting.remove(shortest)
        waited += clock
        clock += lengths[shortest.request_id]
        shortest.token_ids += [7] * lengths[shortest.request_id]
        shortest.finish_reason = "stop"
        predictor.observe(shortest)
    return waited / num_requests


@pytest.mark.parametrize("seed", range(3))
def test_shortest_job_first_waits_less_with_each_predictor_than_in_the_order_of_arrival(seed: int) -> None:
    def wait(build: Callable[[dict[str, int], dict[str, str]], LengthPredictor]) -> float:
        requests, lengths, texts = made_up_mix(seed)
        return mean_wait(build(lengths, texts), requests, lengths)

    arrival = wait(lambda lengths, texts: MaxTokens())  # all alike: min() keeps the order
    oracle = wait(lambda lengths, texts: Oracle(lengths))
    history = wait(lambda lengths, texts: History())
    signals = wait(lambda lengths, texts: Signals(lambda item: texts[item.request_id]))
    small = wait(lambda lengths, texts: SmallModel(lambda items: [lengths[item.request_id] // 2 for item in items]))

    assert oracle <= small < 0.7 * arrival
    assert oracle < history < 0.7 * arrival
    assert oracle < signals < 0.7 * arrival
