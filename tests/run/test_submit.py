"""Whole jobs on a tiny model: what is written, what is computed again, what stops a job."""

import json
import resource
from pathlib import Path
from typing import Any

import pytest

from batchrunner import SamplingParams
from batchrunner.errors import DataError, LockedError, OutputError, StorageError
from batchrunner.generate.engine import Engine
from batchrunner.output.lock import output_lock
from batchrunner.run.submit import run_job_file
from tests.jobs import SilentProgress, answers, job_file, read_output, run, write_jsonl

ROWS: list[dict[str, Any]] = [{"id": i, "text": f"row {i % 17} of many"} for i in range(60)]
SHORT = {"sampling": {"max_tokens": 6}}


def test_rows_come_out_in_order_with_their_columns_and_answers(chat_model: Path, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in.jsonl", ROWS)
    summary = run(job_file(chat_model, tmp_path, SHORT))
    table = read_output(tmp_path / "out0")
    assert table.column_names == ["id", "text", "response", "_batchrun"]
    assert table["id"].to_pylist() == list(range(60))
    with Engine(chat_model, kv_tokens=4096) as engine:
        prompts = [f"Say: {row['text']}" for row in ROWS]
        expected = [completion.text for completion in engine.generate(prompts, SamplingParams(max_tokens=6))]
    assert table["response"].to_pylist() == expected
    assert (summary.num_rows, summary.num_failed, summary.exit_code) == (60, 0, 0)
    assert (tmp_path / "out0" / "_SUCCESS").exists()
    assert "60" in (tmp_path / "out0" / "report.html").read_text()
    assert json.loads((tmp_path / "out0" / "summary.json").read_text())["num_answered"] == 60


def test_equal_rows_are_computed_once(chat_model: Path, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in.jsonl", ROWS)
    summary = run(job_file(chat_model, tmp_path, SHORT))
    assert summary.jobs[0].num_distinct_requests == 17
    found = answers(tmp_path / "out0")
    assert all(found[i] == found[i % 17] for i in range(60))


def test_equal_rows_that_are_sampled_are_computed_each(chat_model: Path, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in.jsonl", [{"text": "same"}] * 8)
    sampling = {"max_tokens": 12, "temperature": 1.0}
    summary = run(job_file(chat_model, tmp_path, {"sampling": sampling}))
    assert summary.jobs[0].num_distinct_requests == 8
    found = answers(tmp_path / "out0")
    assert len(set(found)) > 6
    again = {"sampling": sampling, "output": "again"}
    run(job_file(chat_model, tmp_path, again, max_running=2, block_size=3, policy="fcfs"))
    assert answers(tmp_path / "again") == found
    run(job_file(chat_model, tmp_path, {"sampling": sampling | {"seed": 1}, "output": "other"}))
    assert answers(tmp_path / "other") != found


def test_a_second_run_computes_nothing_and_loads_nothing(
    chat_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_jsonl(tmp_path / "in.jsonl", ROWS)
    loaded = job_file(chat_model, tmp_path, SHORT)
    first = run(loaded)
    monkeypatch.setattr("batchrunner.run.runner.find_model", None)  # would fail if it were asked for
    second = run(loaded)
    assert second.jobs[0].was_done
    assert second.num_rows == first.num_rows


def test_more_rows_compute_only_themselves(chat_model: Path, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in.jsonl", ROWS)
    loaded = job_file(chat_model, tmp_path, SHORT)
    run(loaded)
    before = answers(tmp_path / "out0")
    new = [{"id": 100 + i, "text": f"a new one, {i}"} for i in range(10)]
    write_jsonl(tmp_path / "in.jsonl", [*new[:5], *ROWS, *new[5:]])
    summary = run(loaded)
    assert summary.jobs[0].run.num_output_tokens <= 10 * 6
    assert summary.jobs[0].num_distinct_requests == 27
    assert answers(tmp_path / "out0")[5:-5] == before


def test_a_changed_prompt_computes_anew(chat_model: Path, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in.jsonl", ROWS)
    run(job_file(chat_model, tmp_path, SHORT))
    summary = run(job_file(chat_model, tmp_path, SHORT | {"prompt": "Otherwise: {{ text }}"}))
    assert summary.jobs[0].run.num_output_tokens > 0


BROKEN: dict[str, tuple[dict[str, Any] | str, str]] = {
    "cut off": ('{"text": "cut', "bad_json"),
    "no object": ("[1, 2]", "bad_json"),
    "no column": ({"other": "x"}, "missing_column"),
    "null": ({"text": None}, "null_value"),
    "number": ({"text": 5}, "not_text"),
    "list": ({"text": ["a"]}, "not_text"),
    "blank": ({"text": "  \n"}, "empty_prompt"),
    "too long": ({"text": "x" * 600}, "prompt_too_long"),
    "half a character": ('{"text": "\\ud800"}', "bad_encoding"),
    "bad parameter": ({"text": "fine", "most": 1.5}, "bad_parameter"),
}


def test_broken_rows_hurt_nobody_else(chat_model: Path, tmp_path: Path) -> None:
    """1,000 rows, 30 broken in ten ways: 970 answers, 30 error rows, exit 3."""
    rows: list[dict[str, Any] | str] = [{"id": i, "text": f"row {i}"} for i in range(970)]
    for index, (row, _) in enumerate(list(BROKEN.values()) * 3):
        rows.insert(index * 33, row)
    write_jsonl(tmp_path / "in.jsonl", rows)
    sampling = {"max_tokens": {"column": "most"}}
    write_jsonl(tmp_path / "in.jsonl", [row if isinstance(row, str) else {"most": 3} | row for row in rows])
    summary = run(job_file(chat_model, tmp_path, {"prompt": "{{ text }}", "sampling": sampling}))
    assert (summary.num_rows, summary.num_failed, summary.exit_code) == (1000, 30, 3)
    table = read_output(tmp_path / "out0").to_pylist()
    for index, (_, error_type) in enumerate(list(BROKEN.values()) * 3):
        row = table[index * 33]
        assert row["response"] is None
        assert row["_batchrun"]["error_type"] == error_type
        assert f"in.jsonl, line {index * 33 + 1}" in row["_batchrun"]["error"] or error_type == "prompt_too_long"
    good = [row for row in table if row["_batchrun"]["error"] is None]
    assert [row["id"] for row in good] == list(range(970))
    assert all(row["response"] is not None for row in good)
    assert summary.jobs[0].errors["bad_json"] == 6


@pytest.mark.parametrize("name", ["null", "too long"])
def test_on_error_stop_ends_the_job(chat_model: Path, tmp_path: Path, name: str) -> None:
    write_jsonl(tmp_path / "in.jsonl", [*ROWS, BROKEN[name][0]])
    loaded = job_file(chat_model, tmp_path, SHORT | {"on_error": "stop"})
    for _ in range(2):  # running it again does not make it right
        with pytest.raises(DataError, match="on_error: stop"):
            run(loaded)
    assert not (tmp_path / "out0" / "_SUCCESS").exists()


def test_jobs_of_one_file_share_one_engine(chat_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_jsonl(tmp_path / "in.jsonl", ROWS)
    write_jsonl(tmp_path / "other.jsonl", ROWS[:9])
    engines = []

    def counted(*args: Any, **kwargs: Any) -> Engine:
        engines.append(Engine(*args, **kwargs))
        return engines[-1]

    monkeypatch.setattr("batchrunner.run.runner.Engine", counted)
    summary = run(job_file(chat_model, tmp_path, SHORT, SHORT | {"input": "other.jsonl"}))
    assert len(engines) == 1
    assert [job.num_rows for job in summary.jobs] == [60, 9]
    assert answers(tmp_path / "out1") == answers(tmp_path / "out0")[:9]


def test_messages_go_through_the_chat_template(chat_model: Path, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in.jsonl", [{"text": "hello", "role": "user"}])
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "{{ text }}"}]
    run(job_file(chat_model, tmp_path, {"messages": messages, "sampling": {"max_tokens": 4}}))
    with Engine(chat_model, kv_tokens=512) as engine:
        assert engine.tokenizer is not None
        text = "[system]Be brief.\n[user]hello\n[assistant]"
        assert (
            engine.tokenizer.decode(
                engine.tokenizer.encode_messages(
                    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}]
                )
            )
            == text
        )
        expected = engine.generate([text], SamplingParams(max_tokens=4))[0]
    assert answers(tmp_path / "out0") == [expected.text]
    assert read_output(tmp_path / "out0")["_batchrun"][0]["num_prompt_tokens"].as_py() == expected.num_prompt_tokens


def test_messages_of_a_role_the_model_does_not_know_are_an_error_row(chat_model: Path, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in.jsonl", [{"talk": [{"role": role, "content": "hi"}]} for role in ("user", "robot")])
    summary = run(job_file(chat_model, tmp_path, {"messages": {"column": "talk"}, "sampling": {"max_tokens": 2}}))
    assert summary.jobs[0].errors == {"bad_messages": 1}


def test_an_empty_input_gives_an_empty_output(chat_model: Path, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in.jsonl", [])
    assert run(job_file(chat_model, tmp_path, SHORT)).exit_code == 0
    assert read_output(tmp_path / "out0").num_rows == 0


def test_stop_strings_are_cut_and_tell_why(chat_model: Path, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in.jsonl", ROWS[:5])
    run(job_file(chat_model, tmp_path, {"sampling": {"max_tokens": 40, "ignore_eos": True}}))
    whole = answers(tmp_path / "out0")
    assert whole[0] is not None
    stop = whole[0][10:12]
    sampling = {"max_tokens": 40, "ignore_eos": True, "stop": [stop]}
    run(job_file(chat_model, tmp_path, {"sampling": sampling, "output": "cut"}))
    row = read_output(tmp_path / "cut").to_pylist()[0]
    assert row["response"] == whole[0][: whole[0].index(stop)]
    assert row["_batchrun"]["finish_reason"] == "stop"


def test_the_second_runner_says_who_holds_the_output(chat_model: Path, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in.jsonl", ROWS)
    loaded = job_file(chat_model, tmp_path, SHORT)
    state = tmp_path / "out0" / ".batchrun"
    state.mkdir(parents=True)
    with output_lock(state, wait=False), pytest.raises(LockedError, match=r"pid \d+ on ") as caught:
        run(loaded)
    assert caught.value.exit_code == 75


def test_foreign_data_is_never_written_over(chat_model: Path, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in.jsonl", ROWS)
    (tmp_path / "out0").mkdir()
    (tmp_path / "out0" / "data-00000-of-00001.parquet").write_bytes(b"precious")
    with pytest.raises(OutputError, match="did not write"):
        run(job_file(chat_model, tmp_path, SHORT))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError, match="symbolic link"):
        run(job_file(chat_model, tmp_path, SHORT | {"output": "link"}))


def test_the_output_may_not_lie_in_the_input(chat_model: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    write_jsonl(tmp_path / "data" / "in.jsonl", ROWS)
    with pytest.raises(DataError, match="lies in the input folder"):
        run(job_file(chat_model, tmp_path, SHORT | {"input": "data", "output": "data/out"}))


def test_a_run_tells_how_it_goes(chat_model: Path, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in.jsonl", ROWS)
    progress = SilentProgress()
    run_job_file(job_file(chat_model, tmp_path, SHORT, max_running=4), progress)
    first, last = progress.snapshots[0], progress.snapshots[-1]
    assert first.num_done <= last.num_done <= 60
    assert last.num_rows == 60
    assert 0 < last.hit_rate < 1
    assert max(snapshot.kv_use for snapshot in progress.snapshots) > 0
    assert max(snapshot.num_running for snapshot in progress.snapshots) == 4
    assert last.eta_seconds is not None


def test_an_input_in_the_output_folder_is_never_replaced(chat_model: Path, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in.jsonl", ROWS)
    run(job_file(chat_model, tmp_path, SHORT))
    before = read_output(tmp_path / "out0")
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("out0/*.parquet", "link/out0/*.parquet"):
        job = SHORT | {"input": name, "columns": ["id"], "column": "second"}
        with pytest.raises(DataError, match="lies in the output folder"):
            run(job_file(chat_model, tmp_path, job))
    assert read_output(tmp_path / "out0") == before


def test_a_refused_job_creates_nothing(chat_model: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        run(job_file(chat_model, tmp_path, SHORT))
    assert list(tmp_path.iterdir()) == []


def test_what_failed_for_want_of_memory_is_asked_again_with_more(chat_model: Path, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in.jsonl", [{"text": "short"}, {"text": "long " * 20}])
    first = run(job_file(chat_model, tmp_path, SHORT, kv_tokens=64))
    assert first.jobs[0].errors == {"exceeds_kv_memory": 1}
    second = run(job_file(chat_model, tmp_path, SHORT, kv_tokens=512))
    assert second.num_failed == 0
    assert second.jobs[0].run.num_output_tokens <= 6
    assert read_output(tmp_path / "out0")["_batchrun"][1]["error"].as_py() is None


@pytest.mark.parametrize("limit", [2_000, 9_000, 20_000])
def test_a_full_disk_stops_the_job_and_loses_nothing(chat_model: Path, tmp_path: Path, limit: int) -> None:
    """Whichever file is met first: the spool, the journal or the output."""
    write_jsonl(tmp_path / "in.jsonl", [{"text": f"row {i}"} for i in range(300)])
    loaded = job_file(chat_model, tmp_path, SHORT)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.raises(StorageError, match="File too large"):
            run(loaded)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not (tmp_path / "out0" / "_SUCCESS").exists()
    summary = run(loaded)
    assert (summary.num_rows, summary.num_failed) == (300, 0)
