"""The engine as a library: prompts in, completions out."""

from pathlib import Path
from typing import Any

import psutil
import pytest

from batchrunner import Engine, SamplingParams
from batchrunner.engine.scheduling.schedule import Schedule
from batchrunner.errors import DeviceError, UsageError

PROMPTS = [f"prompt number {i}, about {'cats' if i % 2 else 'dogs'}" for i in range(12)]


@pytest.fixture(scope="module")
def engine(chat_model: Path) -> Any:
    with Engine(chat_model, kv_tokens=4096) as engine:
        yield engine


def test_completions_come_in_the_order_of_the_prompts(engine: Engine) -> None:
    together = engine.generate(PROMPTS, SamplingParams(max_tokens=8))
    alone = [engine.generate([prompt], SamplingParams(max_tokens=8))[0] for prompt in PROMPTS]
    assert [c.token_ids for c in together] == [c.token_ids for c in alone]
    assert [c.text for c in together] == [c.text for c in alone]


def test_texts_and_token_ids_are_the_same_prompt(engine: Engine) -> None:
    assert engine.tokenizer is not None
    ids = engine.tokenizer.encode_prompt("hello")
    text, token_ids = engine.generate(["hello", ids], SamplingParams(max_tokens=5))
    assert text.token_ids == token_ids.token_ids


def test_each_prompt_may_have_its_own_parameters(engine: Engine) -> None:
    params = [SamplingParams(max_tokens=n, ignore_eos=True) for n in range(1, 13)]
    assert [len(c.token_ids) for c in engine.generate(PROMPTS, params)] == list(range(1, 13))
    with pytest.raises(UsageError, match="12 prompts, but 2"):
        engine.generate(PROMPTS, params[:2])


def test_a_prompt_that_cannot_be_answered_has_an_error_and_the_others_an_answer(engine: Engine) -> None:
    found = engine.generate(["fine", "x" * 600, [], [999_999], [-1], "fine too"], SamplingParams(max_tokens=3))
    kinds = [c.error and c.error.error_type for c in found]
    assert kinds == [None, "prompt_too_long", "empty_prompt", "bad_token_id", "bad_token_id", None]
    assert [c.finish_reason == "error" for c in found] == [False, True, True, True, True, False]


def test_one_text_is_no_list_of_prompts(engine: Engine) -> None:
    with pytest.raises(UsageError, match="put the text into a list"):
        engine.generate("hello")


def test_sampled_answers_do_not_depend_on_the_batch(chat_model: Path) -> None:
    params = [SamplingParams(max_tokens=20, temperature=1.1, top_p=0.95, seed=i) for i in range(12)]
    layouts: list[dict[str, Any]] = [
        {"kv_tokens": 4096},
        {"kv_tokens": 4096, "max_running": 1},
        {"kv_tokens": 160, "block_size": 5},
        {"kv_tokens": 4096, "policy": "fcfs", "batching": "static", "max_running": 5},
    ]
    results = []
    for layout in layouts:
        with Engine(chat_model, **layout) as engine:
            results.append([c.token_ids for c in engine.generate(PROMPTS, params)])
    assert all(result == results[0] for result in results)
    assert len(set(results[0])) == 12


def test_equal_prompts_that_are_sampled_differ(engine: Engine) -> None:
    found = engine.generate(["again"] * 6, SamplingParams(max_tokens=16, temperature=1.0))
    assert len({c.token_ids for c in found}) == 6


def test_a_stop_string_may_span_tokens(engine: Engine) -> None:
    whole = engine.generate(["go"], SamplingParams(max_tokens=40, ignore_eos=True))[0]
    stop = whole.text[7:12]
    assert len(stop) == 5  # the tokenizer has one token a byte
    cut = engine.generate(["go"], SamplingParams(max_tokens=40, ignore_eos=True, stop=(stop,)))[0]
    assert cut.text == whole.text[: whole.text.index(stop)]
    assert cut.finish_reason == "stop"
    assert len(cut.token_ids) < len(whole.token_ids)


def test_a_stop_token_is_not_shown(engine: Engine) -> None:
    whole = engine.generate(["go"], SamplingParams(max_tokens=10, ignore_eos=True))[0]
    stop = whole.token_ids[4]
    first = whole.token_ids.index(stop)
    cut = engine.generate(["go"], SamplingParams(max_tokens=10, ignore_eos=True, stop_token_ids=(stop,)))[0]
    assert cut.token_ids == whole.token_ids[: first + 1]
    assert engine.tokenizer is not None
    assert cut.text == engine.tokenizer.decode(whole.token_ids[:first])


def test_a_warm_cache_changes_nothing_but_the_work(chat_model: Path) -> None:
    with Engine(chat_model, kv_tokens=4096) as engine:
        cold = engine.generate(PROMPTS, SamplingParams(max_tokens=8))
        computed = engine.counters.num_computed_tokens
        warm = engine.generate(PROMPTS, SamplingParams(max_tokens=8))
        assert [c.token_ids for c in warm] == [c.token_ids for c in cold]
        assert engine.counters.num_computed_tokens - computed < 0.6 * computed
        assert all(c.num_cached_tokens > 16 for c in warm)


class FailsOn:
    """A runner that fails on one token id, around a real one."""

    def __init__(self, runner: Any, token_id: int) -> None:
        self._runner = runner
        self._token_id = token_id

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def run(self, schedule: Schedule) -> list[int]:
        tokens: list[int] = self._runner.run(schedule)
        for item in schedule.scheduled:
            if self._token_id in item.request.token_ids[item.start : item.end]:
                raise RuntimeError("an illegal memory access")
        return tokens


def test_a_row_the_model_fails_on_is_an_error_and_the_others_are_answered(chat_model: Path) -> None:
    with Engine(chat_model, kv_tokens=4096) as engine:
        sampling = SamplingParams(max_tokens=6)
        expected = engine.generate(PROMPTS, sampling)
        assert engine.tokenizer is not None
        poison = engine.tokenizer.encode_prompt("#")[-1]
        assert not any(poison in completion.token_ids for completion in expected)
        engine.runner = FailsOn(engine.runner, poison)
        got = engine.generate([*PROMPTS[:5], "a # here", *PROMPTS[5:]], sampling)
        culprit = got.pop(5)
        assert culprit.error is not None
        assert culprit.error.error_type == "engine_error"
        assert "an illegal memory access" in str(culprit.error)
        assert [c.token_ids for c in got] == [c.token_ids for c in expected]
        engine.scheduler.check_integrity()


def test_on_finished_tells_each_prompt_once(engine: Engine) -> None:
    told: list[int] = []
    engine.generate(PROMPTS, SamplingParams(max_tokens=2), on_finished=told.append)
    assert sorted(told) == list(range(12))


def test_a_model_without_tokenizer_takes_token_ids(tiny_llama: Path) -> None:
    with Engine(tiny_llama, kv_tokens=512) as engine:
        assert len(engine.generate([[5, 6, 7]], SamplingParams(max_tokens=4, ignore_eos=True))[0].token_ids) == 4
        with pytest.raises(UsageError, match="no tokenizer"):
            engine.generate(["text"])


@pytest.mark.parametrize(
    ("options", "message"),
    [({"kv_token": 5}, "kv_token"), ({"block_size": 0}, "block_size"), ({"kv_tokens": 5, "kv_memory": "1GiB"}, "both")],
)
def test_a_wrong_option_is_named(chat_model: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Engine(chat_model, **options)


def test_a_pool_of_no_block_and_a_device_that_is_not_there_are_refused(chat_model: Path) -> None:
    with pytest.raises(DeviceError, match="not one block"):
        Engine(chat_model, kv_tokens=5)
    import torch

    if not torch.cuda.is_available():
        with pytest.raises(DeviceError, match="no CUDA device"):
            Engine(chat_model, device="cuda")


def test_the_pool_is_sized_by_the_kv_formula(chat_model: Path) -> None:
    """2 (keys and values) · 2 layers · 2 KV heads · 8 dimensions · 4 bytes = 256 bytes a token."""
    with Engine(chat_model, kv_memory="1MiB") as engine:
        assert engine.scheduler.pool.num_blocks == 2**20 // (256 * 16)


def test_a_pool_of_given_size_is_taken_at_the_start(tiny_llama: Path) -> None:
    """Too little memory then shows before the work, not in the middle of it."""

    def taken(**options: Any) -> int:
        before = psutil.Process().memory_info().rss
        with Engine(str(tiny_llama), **options):
            return psutil.Process().memory_info().rss - before

    assert taken(kv_memory=2**28) > 0.9 * 2**28
    assert taken() < 2**27  # auto: as it is used
