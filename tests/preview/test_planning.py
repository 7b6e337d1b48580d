"""`batchrun plan`: rows, tokens and memory, before a weight is loaded."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from batchrunner import Engine
from batchrunner.checkpoint.storage import Storage
from batchrunner.cli.main import cli
from batchrunner.engine.text.tokenizer import Tokenizer
from batchrunner.errors import DeviceError
from batchrunner.forecast import forecaster as forecast
from batchrunner.output.folder import OutputFolder
from batchrunner.output.lock import output_lock
from batchrunner.preview.figures import JobFilePlan
from batchrunner.preview.planning import plan_job_file
from batchrunner.run.submit import run_job_file
from tests.jobs import SilentProgress, job_file, write_jsonl


def plan_of(
    chat_model: Path, tmp_path: Path, rows: list[Any], job: dict[str, Any] | None = None, **engine: Any
) -> JobFilePlan:
    write_jsonl(tmp_path / "in.jsonl", rows)
    return plan_job_file(job_file(chat_model, tmp_path, job or {}, **engine))


def test_rows_tokens_and_failures_are_counted(chat_model: Path, tmp_path: Path) -> None:
    rows = [{"text": "abc"}, {"text": "abc"}, {"text": "defgh"}, {"text": None}, {"other": 1}, "{broken"]
    plan = plan_of(chat_model, tmp_path, rows, {"sampling": {"max_tokens": 7}})
    job = plan.jobs[0]
    assert (job.num_rows, job.num_failed, job.num_requests) == (6, 3, 2)
    assert sum(job.errors.values()) == 3
    # BOS, "Say: " and the text, one token a byte.
    assert job.num_tokens_given == 2 * (1 + 5 + 3) + (1 + 5 + 5)
    assert (job.num_duplicates, job.num_prompt_tokens) == (1, (1 + 5 + 3) + (1 + 5 + 5))
    assert job.num_tokens_to_compute == 1 + 5 + 3 + 5
    assert job.num_answer_tokens == 2 * 7


def test_the_budget_is_that_of_the_run(chat_model: Path, tmp_path: Path) -> None:
    plan = plan_of(chat_model, tmp_path, [{"text": "abc"}], kv_tokens=640, block_size=16)
    with Engine(chat_model, kv_tokens=640, block_size=16) as engine:
        assert plan.budget["kv_bytes_per_token"] == engine.budget.kv_bytes_per_token == 2 * 2 * 2 * 8 * 4
        assert plan.budget["weight_bytes"] == engine.budget.weight_bytes
        assert plan.budget["num_blocks"] == engine.budget.num_blocks == 40
        assert plan.budget["kv_bytes"] == 640 * 256


def test_rows_that_the_pool_never_holds_are_counted_beforehand(chat_model: Path, tmp_path: Path) -> None:
    rows = [{"text": "a"}, {"text": "a" * 60}]
    plan = plan_of(chat_model, tmp_path, rows, {"sampling": {"max_tokens": 20}}, kv_tokens=64)
    assert (plan.jobs[0].num_too_large, plan.jobs[0].num_requests) == (1, 2)
    assert plan.forecast.num_running == 1


def test_rows_longer_than_the_context_are_counted_and_answers_end_with_it(chat_model: Path, tmp_path: Path) -> None:
    rows = [{"text": "a" * 600}, {"text": "a" * 494}]  # the context holds 512 tokens, six are not the text's
    plan = plan_of(chat_model, tmp_path, rows, {"sampling": {"max_tokens": 100}}, kv_tokens=1024)
    assert (plan.jobs[0].num_too_long, plan.jobs[0].num_too_large) == (1, 0)
    assert plan.jobs[0].num_answer_tokens == 12
    assert plan.jobs[0].num_will_fail == 1


def test_memory_that_is_not_there_is_refused(chat_model: Path, tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match=r"engine.kv_memory"):
        plan_of(chat_model, tmp_path, [{"text": "a"}], kv_tokens=None, kv_memory="900TiB")


def test_the_verb_prints_a_table_or_json_and_writes_no_output(chat_model: Path, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in.jsonl", [{"text": "abc"}, {"text": None}])
    job = tmp_path / "jobs.yaml"
    job.write_text(
        f"model: {chat_model}\nengine: {{kv_tokens: 640}}\n"
        "jobs: [{name: one, input: in.jsonl, output: out, prompt: '{{ text }}'}]\n"
    )
    printed = CliRunner().invoke(cli, ["plan", str(job)], standalone_mode=False)
    assert printed.return_value == 0
    assert "null_value" in printed.output
    assert "40 blocks of 16 = 640 tokens of 256 bytes" in printed.output
    found = json.loads(CliRunner().invoke(cli, ["plan", str(job), "--json", "--shards", "2"]).output)
    assert found["budget"]["num_blocks"] == 40
    assert found["forecast"]["num_tokens_to_compute"] == 4
    assert [shard["num_rows"] for shard in found["shards"]] in ([1, 0], [0, 1])
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".batchrun"]


def test_a_run_finds_the_rows_that_its_plan_has_tokenised(
    chat_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_jsonl(tmp_path / "in.jsonl", [{"text": f"row {number}"} for number in range(30)])
    job = job_file(chat_model, tmp_path, {"sampling": {"max_tokens": 2, "ignore_eos": True}}, kv_tokens=2048)
    plan = plan_job_file(job)
    monkeypatch.setattr(Tokenizer, "encode_prompts", None)
    summary = run_job_file(job, SilentProgress())
    counters = summary.run
    assert counters.num_prompt_tokens - counters.num_cached_tokens == plan.forecast.num_tokens_to_compute
    assert not (tmp_path / "out0" / ".batchrun" / "spool").exists()


def test_what_plans_leave_of_a_finished_job_is_removed(chat_model: Path, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in.jsonl", [{"text": "abc"}])
    job = job_file(chat_model, tmp_path, {"sampling": {"max_tokens": 2}}, kv_tokens=640)
    run_job_file(job, SilentProgress())
    assert plan_job_file(job).jobs[0].num_rows == 1
    assert not (tmp_path / "out0" / ".batchrun" / "spool").exists()


def test_while_a_job_runs_it_can_be_planned(chat_model: Path, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in.jsonl", [{"text": "abc"}])
    job = job_file(chat_model, tmp_path, {"sampling": {"max_tokens": 2}}, kv_tokens=640)
    folder = OutputFolder(Path(job.jobs[0].output), Storage())
    folder.create()
    with output_lock(folder.state, wait=False):
        assert plan_job_file(job).jobs[0].num_rows == 1
    assert not folder.spool.exists()


def test_jobs_of_one_file_share_what_their_prompts_have_in_common(chat_model: Path, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in.jsonl", [{"text": "abc"}, {"text": "abd"}])
    both = job_file(chat_model, tmp_path, {"prompt": "Say: {{ text }}x"}, {"prompt": "Say: {{ text }}y"})
    plan = plan_job_file(both)
    counters = run_job_file(both, SilentProgress()).run
    assert [job.num_tokens_to_compute for job in plan.jobs] == [12, 12]
    assert plan.forecast.num_tokens_to_compute == 14 == counters.num_prompt_tokens - counters.num_cached_tokens


@pytest.mark.parametrize("options", [{"prefix_caching": False}, {"policy": "fcfs"}, {"batching": "static"}], ids=str)
def test_what_is_computed_is_forecast_with_other_options_too(
    chat_model: Path, tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecast, "MAX_ROWS", 60)
    write_jsonl(tmp_path / "in.jsonl", [{"text": f"{number % 7} {number}"} for number in range(90)])
    job = {"sampling": {"max_tokens": 2, "ignore_eos": True}}
    loaded = job_file(chat_model, tmp_path, job, job, max_running=8, **options)
    plan = plan_job_file(loaded).forecast
    run = run_job_file(loaded, SilentProgress()).run
    assert plan.num_tokens_to_compute == run.num_prompt_tokens - run.num_cached_tokens
    assert plan.num_tokens_lost == 0


@pytest.mark.parametrize("kv_tokens", [16, 80])
def test_a_pool_that_is_next_to_nothing_is_planned(
    chat_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kv_tokens: int
) -> None:
    monkeypatch.setattr(forecast, "MAX_ROWS", 60)
    write_jsonl(tmp_path / "in.jsonl", [{"text": f"{number:03}" * 10} for number in range(90)])
    plan = plan_job_file(job_file(chat_model, tmp_path, {"sampling": {"max_tokens": 20}}, kv_tokens=kv_tokens))
    assert plan.jobs[0].num_too_large == (90 if kv_tokens == 16 else 0)
    assert all("half the KV memory" not in item.change for item in plan.what_if)
