"""A run by its plan: what never fits is refused first, the rest runs in the planned order, and is planned again."""

import re
from pathlib import Path
from typing import Any

import pytest

from batchrunner.engine.request import Completion, Request
from batchrunner.errors import ModelError
from batchrunner.generate.engine import Engine
from batchrunner.preview.planning import plan_job_file
from batchrunner.run import feed
from batchrunner.run.job_run import JobRun
from batchrunner.run.submit import run_job_file
from batchrunner.simulate.cost.model_shape import ModelShape
from tests.jobs import SilentProgress, answers, job_file, write_jsonl

FIXED = {"max_tokens": 30, "ignore_eos": True}


def write_rows(base: Path, num_rows: int) -> None:
    write_jsonl(
        base / "in.jsonl", [{"text": f"{number:03}, and more of it in every row"} for number in range(num_rows)]
    )


def prompts_in_order(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    found: list[list[int]] = []
    add = Engine.add

    def noting(engine: Engine, item: Request) -> None:
        found.append(list(item.token_ids))
        add(engine, item)

    monkeypatch.setattr(Engine, "add", noting)
    return found


def test_a_run_says_what_it_plans_and_how_long_it_will_take(chat_model: Path, tmp_path: Path) -> None:
    write_rows(tmp_path, 40)
    progress = SilentProgress()
    run = run_job_file(job_file(chat_model, tmp_path, {"sampling": FIXED}), progress).run
    plan = next(note for note in progress.notes if note.startswith("plan: "))
    num_computed = run.num_prompt_tokens - run.num_cached_tokens
    assert plan.startswith(f"plan: {num_computed:,} of {run.num_prompt_tokens:,} prompt tokens to compute")
    assert "answers of 30 tokens on average (ignore_eos: as long as max_tokens)" in plan
    forecast = next(note for note in progress.notes if note.startswith("forecast: "))
    assert f"{num_computed:,} prompt tokens to compute" in forecast
    assert run.forecast_seconds > 0


def test_what_an_earlier_run_measured_is_known_to_the_next_plan(
    chat_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCHRUNNER_CACHE", str(tmp_path / "cache"))
    write_rows(tmp_path, 40)
    job = job_file(chat_model, tmp_path, {"sampling": {"max_tokens": 30}})
    before = plan_job_file(job)
    run_job_file(job, SilentProgress())
    after = plan_job_file(job)
    assert before.forecast.speeds_from.startswith("a quick probe")
    assert after.forecast.speeds_from == "measured in an earlier run of this model here"
    assert "nothing is known" in before.jobs[0].lengths_from
    assert after.jobs[0].lengths_from == "40 answers of this template"


def test_rows_that_never_fit_are_error_rows_before_anything_is_computed(
    chat_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_jsonl(tmp_path / "in.jsonl", [{"text": text} for text in ("a", "b" * 600, "c" * 100, "d")])
    events: list[str] = []
    step, finish = Engine.step, JobRun.finish

    def noting_step(engine: Engine) -> list[Request]:
        events.append("step")
        return step(engine)

    def noting_finish(run: JobRun, request_id: bytes, completion: Completion) -> None:
        if completion.error is not None:
            events.append(completion.error.error_type)
        finish(run, request_id, completion)

    monkeypatch.setattr(Engine, "step", noting_step)
    monkeypatch.setattr(JobRun, "finish", noting_finish)
    summary = run_job_file(
        job_file(chat_model, tmp_path, {"sampling": {"max_tokens": 5}}, kv_tokens=64), SilentProgress()
    )
    assert events[:3] == ["prompt_too_long", "exceeds_kv_memory", "step"]
    assert summary.jobs[0].errors == {"prompt_too_long": 1, "exceeds_kv_memory": 1}
    assert [answer is None for answer in answers(tmp_path / "out0")] == [False, True, True, False]


def test_a_job_of_rows_that_never_fit_ends_without_a_step(chat_model: Path, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in.jsonl", [{"text": "b" * 600}])
    summary = run_job_file(job_file(chat_model, tmp_path, {}), SilentProgress())
    assert (summary.num_failed, summary.run.num_steps) == (1, 0)


def test_once_the_sample_has_ended_the_rest_is_planned_anew(
    chat_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCHRUNNER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(feed, "MIN_WAITING", 4)
    monkeypatch.setattr(feed, "MAX_WAITING", 8)
    write_rows(tmp_path, 300)
    asked = prompts_in_order(monkeypatch)
    progress = SilentProgress()
    job = job_file(chat_model, tmp_path, {"sampling": {"max_tokens": 12}}, max_running=4)
    summary = run_job_file(job, progress)
    assert summary.jobs[0].num_answered == 300
    assert len(asked) == 300 and len({tuple(prompt) for prompt in asked}) == 300
    assert asked[:3] == sorted(asked[:3]) and asked[:3] != sorted(asked)[:3]  # the sample
    assert asked[40:] == sorted(asked[40:])
    forecast = next(note for note in progress.notes if note.startswith("forecast: "))
    assert "answers of this template)" in forecast


@pytest.mark.parametrize("policy", ["fcfs", "sjf", "mlfq"])
def test_other_policies_take_the_rows_as_they_stand(
    chat_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    write_jsonl(tmp_path / "in.jsonl", [{"text": text} for text in ("c", "a", "b")])
    asked = prompts_in_order(monkeypatch)
    run_job_file(job_file(chat_model, tmp_path, {"sampling": {"max_tokens": 2}}, policy=policy), SilentProgress())
    assert [prompt[-1] for prompt in asked] == [asked[1][-1] + 2, asked[1][-1], asked[1][-1] + 1]


def test_a_model_of_an_unknown_family_is_run_without_a_forecast(
    chat_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*args: Any) -> ModelShape:
        raise ModelError("not a family whose sizes are known")

    monkeypatch.setattr(ModelShape, "from_config", unknown)
    write_rows(tmp_path, 5)
    progress = SilentProgress()
    summary = run_job_file(job_file(chat_model, tmp_path, {"sampling": FIXED}), progress)
    assert (summary.num_failed, summary.run.forecast_seconds) == (0, 0.0)
    assert not any(note.startswith("forecast") for note in progress.notes)


def test_what_field_order_would_save_is_what_it_saves(chat_model: Path, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in.jsonl", [{"key": f"k{number}", "kind": "the same for all"} for number in range(20)])
    job = {"prompt": "{{ fields }} is", "fields": ["key", "kind"], "sampling": {"max_tokens": 2, "ignore_eos": True}}
    plan = plan_job_file(job_file(chat_model, tmp_path, job))
    other = next(item for item in plan.what_if if "field_order: auto" in item.change)
    assert other.num_tokens_to_compute < plan.forecast.num_tokens_to_compute
    run = run_job_file(job_file(chat_model, tmp_path, {**job, "field_order": "auto"}), SilentProgress()).run
    assert run.num_prompt_tokens - run.num_cached_tokens == other.num_tokens_to_compute


def test_the_sample_is_who_runs_first_and_not_who_ends_first(
    chat_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers that end first are the short ones."""
    monkeypatch.setenv("BATCHRUNNER_CACHE", str(tmp_path / "cache"))
    write_rows(tmp_path, 400)
    progress = SilentProgress()
    sampling = {"max_tokens": 60, "temperature": 1.0, "stop_token_ids": list(range(20, 24))}
    loaded = job_file(chat_model, tmp_path, {"sampling": sampling}, max_running=64, kv_tokens=16_384)
    summary = run_job_file(loaded, progress)
    forecast = next(note for note in progress.notes if note.startswith("forecast: "))
    found = re.search(r"answers of (\d+) tokens on average \((\d+) answers", forecast)
    assert found is not None and int(found[2]) == 8
    assert int(found[1]) > 0.5 * summary.jobs[0].num_output_tokens / 400
