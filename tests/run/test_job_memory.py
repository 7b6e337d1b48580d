"""Jobs and memory: a KV store kept for tomorrow's run, priorities of rows and jobs, lengths that are remembered."""

import json
import warnings
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from batchrunner.cache_folder import cache_folder
from batchrunner.engine.request import Request
from batchrunner.errors import DataError
from batchrunner.generate.engine import Engine
from batchrunner.output.summary import Summary
from batchrunner.run.submit import run_job_file
from tests.jobs import SilentProgress, job_file, write_jsonl

INSTRUCTION = "Answer with one word: is this review a good one, or is it a bad one? " * 3
DISK = {"path": "kv", "size": "8MiB", "keep": True}


def run(model: Path, base: Path, *jobs: dict[str, Any], **engine: Any) -> tuple[Summary, list[str]]:
    progress = SilentProgress()
    return run_job_file(job_file(model, base, *jobs, **engine), progress), progress.notes


def write_reviews(base: Path, day: str, count: int = 12) -> None:
    rows = [{"text": f"{day}, the review of customer {i}"} for i in range(count)]
    write_jsonl(base / "in.jsonl", rows)


def daily(output: str) -> dict[str, Any]:
    return {"prompt": INSTRUCTION + "{{ text }}", "output": output, "sampling": {"max_tokens": 4}}


def answers(folder: Path) -> list[str]:
    tables = [pq.read_table(file) for file in sorted(folder.glob("data-*.parquet"))]
    return [text for table in tables for text in table["response"].to_pylist()]


def test_tomorrows_run_loads_the_shared_prefix_instead_of_computing_it(chat_model: Path, tmp_path: Path) -> None:
    write_reviews(tmp_path, "Monday")
    first, _ = run(chat_model, tmp_path, daily("monday"), tiers={"disk": DISK})
    assert first.run.num_blocks_from_disk == 0
    write_reviews(tmp_path, "Tuesday")
    second, _ = run(chat_model, tmp_path, daily("tuesday"), tiers={"disk": DISK})
    num_shared = 1 + len(INSTRUCTION)
    own = second.jobs[0].num_prompt_tokens - 12 * num_shared
    assert second.run.num_blocks_from_disk == num_shared // 16
    # Of all prompt tokens of the shared prefix at most an unfinished block is computed.
    assert second.run.num_computed_tokens - own - 12 * 3 <= 0.03 * 12 * num_shared
    third, _ = run(chat_model, tmp_path, daily("afresh"))
    assert third.run.num_blocks_from_disk == 0
    assert answers(tmp_path / "tuesday") == answers(tmp_path / "afresh")


def test_a_damaged_store_is_computed_anew_and_said(chat_model: Path, tmp_path: Path) -> None:
    write_reviews(tmp_path, "Monday")
    run(chat_model, tmp_path, daily("monday"), tiers={"disk": DISK})
    (store,) = (tmp_path / "kv").iterdir()
    content = bytearray(store.read_bytes())
    for position in range(4096, 4096 + 40 * 4096, 512):
        content[position] ^= 1
    store.write_bytes(content)
    write_reviews(tmp_path, "Tuesday")
    with pytest.warns(UserWarning, match="damaged"):
        second, _ = run(chat_model, tmp_path, daily("tuesday"), tiers={"disk": DISK})
    assert second.run.num_blocks_from_disk == 0
    run(chat_model, tmp_path, daily("afresh"))
    assert answers(tmp_path / "tuesday") == answers(tmp_path / "afresh")


def test_another_models_store_is_not_used(chat_model: Path, tmp_path: Path) -> None:
    write_reviews(tmp_path, "Monday")
    run(chat_model, tmp_path, daily("monday"), tiers={"disk": DISK})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other, _ = run(chat_model, tmp_path, daily("other"), tiers={"disk": DISK}, quantization="int8")
    assert other.run.num_blocks_from_disk == 0
    assert len(list((tmp_path / "kv").iterdir())) == 2


def test_urgent_rows_of_all_jobs_run_first(chat_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"text": f"a{i}", "urgency": i % 3} for i in range(6)])
    write_jsonl(tmp_path / "b.jsonl", [{"text": f"b{i}"} for i in range(3)])
    added: list[tuple[str, int]] = []
    add = Engine.add

    def noting(engine: Engine, item: Request) -> None:
        assert engine.tokenizer is not None
        added.append((engine.tokenizer.decode(item.token_ids)[-2:], item.priority))
        add(engine, item)

    monkeypatch.setattr(Engine, "add", noting)
    first = {"input": "a.jsonl", "priority": {"column": "urgency"}, "sampling": {"max_tokens": 2}}
    second = {"input": "b.jsonl", "priority": 1, "sampling": {"max_tokens": 2}}
    run(chat_model, tmp_path, first, second, policy="priority")
    assert [name for name, _ in added] == ["a2", "a5", "a1", "a4", "b0", "b1", "b2", "a0", "a3"]
    assert [priority for _, priority in added] == [2, 2, 1, 1, 1, 1, 1, 0, 0]


@pytest.mark.parametrize("value", ["high", 1.5, True, 10_000_000, float("inf")])
def test_a_priority_that_is_none_is_an_error_row(chat_model: Path, tmp_path: Path, value: Any) -> None:
    write_jsonl(tmp_path / "in.jsonl", [{"text": "a", "urgency": value}, {"text": "b", "urgency": None}])
    summary, _ = run(chat_model, tmp_path, {"priority": {"column": "urgency"}, "sampling": {"max_tokens": 2}})
    assert summary.jobs[0].errors == {"bad_parameter": 1}
    assert "priority from column 'urgency'" in summary.jobs[0].example_errors["bad_parameter"]


def test_a_priority_column_that_is_nowhere_is_refused_at_the_start(chat_model: Path, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in.jsonl", [{"text": "a"}])
    with pytest.raises(DataError, match="priority: the input has no column 'urgncy'; it has text"):
        run(chat_model, tmp_path, {"priority": {"column": "urgncy"}})


def test_lengths_of_a_template_are_remembered_for_the_next_run(
    chat_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCHRUNNER_CACHE", str(tmp_path / "cache"))
    write_reviews(tmp_path, "Monday")
    run(chat_model, tmp_path, daily("monday"), policy="sjf")
    (file,) = (cache_folder() / "lengths").iterdir()
    known = json.loads(file.read_text())
    assert sum(len(values) for name, values in known.items() if name.startswith("*:")) == 12
    write_reviews(tmp_path, "Tuesday")
    run(chat_model, tmp_path, daily("tuesday"), policy="sjf")
    known = json.loads(file.read_text())
    assert sum(len(values) for name, values in known.items() if name.startswith("*:")) == 24
    file.write_text("[no json")  # of no use, and no harm
    write_reviews(tmp_path, "Wednesday")
    run(chat_model, tmp_path, daily("wednesday"), policy="sjf")


def test_a_run_says_what_memory_there_is(chat_model: Path, tmp_path: Path) -> None:
    write_reviews(tmp_path, "Monday")
    _, notes = run(chat_model, tmp_path, daily("out"), kv_tokens=4096)
    (budget,) = [note for note in notes if note.startswith("memory:")]
    assert "256 blocks of 16 = 4,096 tokens of 256 bytes" in budget
    assert "rows at once" in budget


def test_thrashing_is_said_and_answered(chat_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers grow into a pool that holds two of them; the engine learns to run fewer at once."""
    monkeypatch.setattr(
        "batchrunner.engine.scheduling.congestion.TOO_MUCH", 0.01
    )  # this model computes again in no time
    write_jsonl(tmp_path / "in.jsonl", [{"text": f"{i}"} for i in range(40)])
    job = {"sampling": {"max_tokens": 200, "ignore_eos": True}}
    summary, notes = run(chat_model, tmp_path, job, kv_tokens=480, preemption="recompute", max_running=40)
    assert summary.num_failed == 0
    assert summary.run.num_thrashes > 0
    assert any(note.startswith("KV memory is too small") for note in notes)
