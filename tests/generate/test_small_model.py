"""Lengths predicted by a small model, and the engine that runs it."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from batchrunner import SamplingParams
from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.predictors.kept_estimates import KeptEstimates
from batchrunner.engine.scheduling.predictors.small_model import SmallModel
from batchrunner.errors import UsageError
from batchrunner.generate.small_model import SmallModelAnswers
from tests.engine.scheduling.predictors.predictor_requests import ended, request
from tests.models import build_tiny_tokenizer

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
    from batchrunner import Engine

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
