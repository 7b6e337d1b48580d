"""Lengths predicted from the words of the prompt, and their calibration."""

import time

import pytest

from batchrunner.engine.scheduling.predictors.calibration import Calibration
from batchrunner.engine.scheduling.predictors.signals import NUM_CHARS, Signals, guessed_tokens
from tests.engine.scheduling.predictors.predictor_requests import ended, request


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
