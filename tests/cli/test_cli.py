"""The command line as a person or a script meets it: in its own process."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from tests.jobs import BATCHRUN, batchrun, write_jsonl


def write_job(folder: Path, model: Path, num_rows: int = 20, max_tokens: int = 5, **job: Any) -> Path:
    write_jsonl(folder / "in.jsonl", [{"id": i, "text": f"row {i}"} for i in range(num_rows)])
    defaults: dict[str, Any] = {"name": "j", "input": "in.jsonl", "output": "out", "prompt": "{{ text }}"}
    defaults["sampling"] = {"max_tokens": max_tokens, "ignore_eos": True}
    engine = {"kv_tokens": 4096, "max_running": 4}
    document = {"model": str(model), "engine": engine, "jobs": [defaults | job]}
    (folder / "jobs.yaml").write_text(yaml.safe_dump(document))
    return folder / "jobs.yaml"


def test_submit_then_again(chat_model: Path, tmp_path: Path) -> None:
    write_job(tmp_path, chat_model)
    first = batchrun("submit", "jobs.yaml", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "20 of 20 rows answered" in first.stdout
    assert "Traceback" not in first.stderr
    second = batchrun("submit", "jobs.yaml", "--json", cwd=tmp_path)
    assert second.returncode == 0
    assert json.loads(second.stdout)["jobs"][0]["was_done"] is True
    status = batchrun("status", "jobs.yaml", cwd=tmp_path)
    assert "j: done, 20 of 20 rows" in status.stdout
    assert json.loads(batchrun("status", "out", "--json", cwd=tmp_path).stdout)["jobs"][0]["state"] == "done"


def test_a_line_per_interval_when_nobody_watches(chat_model: Path, tmp_path: Path) -> None:
    write_job(tmp_path, chat_model)
    done = batchrun("submit", "jobs.yaml", cwd=tmp_path)
    assert "j: 20 rows in 1 files, 20 requests to compute" in done.stderr
    assert "\x1b" not in done.stderr + done.stdout


def test_failed_rows_exit_3(chat_model: Path, tmp_path: Path) -> None:
    job = write_job(tmp_path, chat_model)
    with (tmp_path / "in.jsonl").open("a") as file:
        file.write("not json\n")
    done = batchrun("submit", job, cwd=tmp_path)
    assert done.returncode == 3
    assert "1 × bad_json, the first:" in done.stdout
    assert "in.jsonl, line 21" in done.stdout
    assert batchrun("submit", job, cwd=tmp_path).returncode == 3  # nothing has become better


@pytest.mark.parametrize(
    ("change", "exit_code", "message"),
    [
        ({"jobs": [{"nam": "j"}]}, 78, "did you mean 'name'"),
        ({"engine": {"policy": "best"}}, 78, "engine.policy: 'best'"),
        ({"model": "/no/such"}, 65, "/no/such"),
        ({"jobs": "x"}, 78, "jobs"),
    ],
)
def test_mistakes_have_their_code_and_message(
    chat_model: Path, tmp_path: Path, change: dict[str, Any], exit_code: int, message: str
) -> None:
    path = write_job(tmp_path, chat_model)
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | change))
    for verb in ("submit", "validate"):
        done = batchrun(verb, path, cwd=tmp_path)
        assert (done.returncode, message in done.stderr) == (exit_code, True), done.stderr
        assert "Traceback" not in done.stderr
    as_json = json.loads(batchrun("validate", path, "--json", cwd=tmp_path).stdout)
    assert as_json["exit_code"] == exit_code
    assert message in as_json["error"]


def test_usage_errors_exit_64(tmp_path: Path) -> None:
    assert batchrun("submit", cwd=tmp_path).returncode == 64
    assert batchrun("no-such-verb", cwd=tmp_path).returncode == 64
    assert batchrun("status", tmp_path, cwd=tmp_path).returncode == 64


def test_missing_input_exits_65_and_an_impossible_output_73(chat_model: Path, tmp_path: Path) -> None:
    job = write_job(tmp_path, chat_model, input="gone/*.parquet")
    done = batchrun("submit", job, cwd=tmp_path)
    assert (done.returncode, "gone/*.parquet" in done.stderr) == (65, True)
    (tmp_path / "file").write_text("")
    job = write_job(tmp_path, chat_model, output="file/out")
    assert batchrun("submit", job, cwd=tmp_path).returncode == 73


def test_init_writes_a_job_that_validates(tmp_path: Path) -> None:
    assert batchrun("init", cwd=tmp_path).returncode == 0
    done = batchrun("validate", "jobs.yaml", cwd=tmp_path)
    assert (done.returncode, done.stdout.startswith("reviews: valid")) == (0, True)
    again = batchrun("init", cwd=tmp_path)
    assert (again.returncode, "exists already" in again.stderr) == (64, True)


@pytest.mark.parametrize("verb", [["--help"], ["status", "jobs.yaml"], ["validate", "jobs.yaml"]])
def test_quick_verbs_import_neither_torch_nor_transformers(chat_model: Path, tmp_path: Path, verb: list[str]) -> None:
    write_job(tmp_path, chat_model)
    code = (
        "import sys\nfrom batchrunner.cli.main import main\n"
        "try: main()\nfinally: print([m for m in ('torch', 'transformers', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, *verb], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.strip().endswith("[]")


def start(job: Path, cwd: Path, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen([*BATCHRUN, "submit", str(job)], cwd=cwd, text=True, **options)


def wait_for_progress(folder: Path, process: subprocess.Popen[str]) -> None:
    """Until a few rows are done and the run is in the middle."""
    progress = folder / "out" / ".batchrun" / "progress.json"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, "the run ended before it could be interrupted"
        if progress.exists() and json.loads(progress.read_text())["num_done"] > 2:
            return
        time.sleep(0.02)
    raise AssertionError("no progress")


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)])
def test_a_signal_leaves_a_state_to_go_on_from(
    chat_model: Path, tmp_path: Path, number: signal.Signals, exit_code: int
) -> None:
    job = write_job(tmp_path, chat_model, num_rows=400, max_tokens=30)
    process = start(job, tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for_progress(tmp_path, process)
    assert f"j: running (pid {process.pid} on " in batchrun("status", job, cwd=tmp_path).stdout
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == exit_code
    assert "run the same command again to go on" in err
    assert "Traceback" not in err
    assert "interrupted" in batchrun("status", job, cwd=tmp_path).stdout
    done = batchrun("submit", job, "--json", cwd=tmp_path)
    assert done.returncode == 0
    summary = json.loads(done.stdout)["jobs"][0]
    assert summary["num_output_tokens"] == 400 * 30
    assert summary["run"]["num_output_tokens"] < 400 * 30  # the first run's tokens were kept


def test_a_terminal_shows_live_figures(chat_model: Path, tmp_path: Path) -> None:
    job = write_job(tmp_path, chat_model, num_rows=100, max_tokens=20)
    leader, follower = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "100"}
    process = start(job, tmp_path, stdout=subprocess.PIPE, stderr=follower, env=environment)
    os.close(follower)
    shown = b""
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        shown += piece
    os.close(leader)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    for figure in (b"/100 rows", b"tokens/s", b"hit rate", b"KV ", b"ETA "):
        assert figure in shown
    assert "100 of 100 rows answered" in out


def test_output_is_what_pandas_and_datasets_read(chat_model: Path, tmp_path: Path) -> None:
    import datasets
    import pandas as pd

    assert batchrun("submit", write_job(tmp_path, chat_model), cwd=tmp_path).returncode == 0
    expected = pq.read_table(tmp_path / "out" / "data-00000-of-00001.parquet")["response"].to_pylist()
    loaded = datasets.load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
    assert list(loaded["train"]["response"]) == expected
    assert pd.read_parquet(tmp_path / "out" / "data-00000-of-00001.parquet")["response"].tolist() == expected


def test_what_cannot_be_printed_is_said_in_one_line(chat_model: Path, tmp_path: Path) -> None:
    write_job(tmp_path, chat_model)
    with Path("/dev/full").open("w") as full:
        code = "from batchrunner.cli.main import main; main()"
        command = [sys.executable, "-c", code, "status", "jobs.yaml"]
        done = subprocess.run(command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 74
    assert done.stderr.startswith("batchrun: reading or writing failed: No space left on device")
    assert "Traceback" not in done.stderr
