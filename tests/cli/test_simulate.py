"""`batchrun simulate`, and whether it does what `batchrun submit` does."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from batchrunner.cli.main import cli
from batchrunner.errors import BatchrunError
from batchrunner.simulate.cost.device import Device
from batchrunner.simulate.cost.model_shape import ModelShape
from batchrunner.simulate.load.job_rows import read_job_rows
from batchrunner.simulate.simulator import Simulator
from tests.jobs import job_file, run, write_jsonl


def invoke(*args: str | Path) -> Result:
    return CliRunner().invoke(cli, ["simulate", *map(str, args)], catch_exceptions=False)


def refusal(*args: str | Path) -> str:
    with pytest.raises(BatchrunError) as caught:
        invoke(*args)
    return str(caught.value)


def write_job(folder: Path, model: Path, rows: list[dict[str, Any] | str]) -> Path:
    write_jsonl(folder / "in.jsonl", rows)
    sampling = {"max_tokens": 8}
    job = {"name": "j", "input": "in.jsonl", "output": "out", "prompt": "Say: {{ text }}", "sampling": sampling}
    path = folder / "jobs.yaml"
    path.write_text(yaml.safe_dump({"model": str(model), "engine": {"max_running": 4}, "jobs": [job]}))
    return path


@pytest.fixture
def job(chat_model: Path, tmp_path: Path) -> Path:
    return write_job(tmp_path, chat_model, [{"text": f"row {index}"} for index in range(20)])


def test_a_table_of_policies(job: Path) -> None:
    result = invoke(job, "--compare", "policy=fcfs,sjf,mlfq,prefix", "--device", "l4")
    assert result.exit_code == 0
    for word in ("policy", "fcfs", "prefix", "makespan", "p99", "hits", "preempted", "limit"):
        assert word in result.stdout
    assert "20 rows on l4" in " ".join(result.stdout.split())
    assert "to host memory and back in" in result.stdout


def test_all_combinations_as_json_and_a_picture(job: Path, tmp_path: Path) -> None:
    picture = tmp_path / "p.svg"
    compare = ("--compare", "batching=continuous,static", "--compare", "engine.schedule_every=1,5")
    result = invoke(job, *compare, "--picture", picture, "--json", "-o", "engine.max_running=2")
    runs = json.loads(result.stdout)["runs"]
    assert list(runs) == [
        f"batching={batching}, schedule_every={every}" for batching in ("continuous", "static") for every in (1, 5)
    ]
    assert {report["num_rows"] for report in runs.values()} == {20}
    assert {report["most_running"] for report in runs.values()} == {2}
    assert "batching=static" in picture.read_text()


def test_lengths_and_rows(job: Path) -> None:
    def output_tokens(*args: str) -> int:
        (report,) = json.loads(invoke(job, "--json", *args).stdout)["runs"].values()
        return int(report["num_output_tokens"])

    assert output_tokens() == 20 * 8
    assert output_tokens("--lengths", "fixed:3") == 20 * 3
    assert output_tokens("--lengths", "fixed:3", "--rows", "5") == 5 * 3
    lengths = job.parent / "lengths.txt"
    lengths.write_text("1\n2\n3\n" + "4\n" * 17)
    assert output_tokens("--lengths", str(lengths), "--rows", "3") == 6
    assert output_tokens("--lengths", str(lengths), "--compare", "lengths=oracle") == 6 + 17 * 4


def test_another_model_than_the_jobs(job: Path, tmp_path: Path) -> None:
    named, own = invoke(job, "--model", "llama-2-7b"), invoke(job)
    assert "tokens of 524,288 bytes" in named.stdout
    assert "tokens of 524,288 bytes" not in own.stdout
    assert named.stdout != own.stdout


def test_rows_that_fail_and_rows_that_are_equal(chat_model: Path, tmp_path: Path) -> None:
    job = write_job(
        tmp_path, chat_model, [{"text": "a"}, {"text": "a"}, {"other": "a"}, "no json", {"text": "b" * 600}]
    )
    result = invoke(job)
    assert "2 rows cannot be asked, 1 ask what others ask" in result.stderr
    assert "1 rows can never be answered: prompt_too_long" in result.stderr


def test_made_up_rows() -> None:
    for load in ("equal:20", "sharegpt:20", "prefixes:100", "agents:60"):
        result = invoke("--load", load, "--compare", "policy=prefix,fcfs")
        assert result.exit_code == 0
        assert load in result.stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "give either a job file or --load NAME:ROWS"),
        (("x.yaml", "--load", "equal:5"), "give either a job file or --load"),
        (("--load", "equal:0"), "--load equal:0: write NAME:ROWS"),
        (("--load", "many:5"), "known are equal (32 tokens in, 128 out), sharegpt"),
        (("--load", "equal:5", "--rows", "3"), "--rows: the rows of --load equal:5"),
        (("--load", "equal:5", "--lengths", "max"), "--lengths: the rows of --load equal:5"),
        (("--load", "equal:5", "--device", "h999"), "device 'h999': unknown"),
        (("--load", "equal:5", "--model", "m"), "model 'm': unknown"),
        (("--load", "equal:5", "-o", "model=m"), "-o model: there is no job file"),
        (("--load", "equal:5", "-o", "engine.lengths=signals"), "engine.lengths: a predictor that reads prompts"),
        (("--load", "equal:5", "--compare", "policy"), "--compare policy: write KEY=A,B"),
        (("--load", "equal:5", "--compare", "policy=fcfs,"), "--compare policy=fcfs,: write KEY=A,B"),
        (("--load", "equal:5", "--compare", "policy=best"), "engine.policy: 'best'"),
        (("--load", "equal:5", "--compare", "polcy=fcfs"), "did you mean 'policy'"),
        (("--load", "equal:5", "--picture", "p.gif"), "--picture p.gif: the name should end in .png or .svg"),
        (("--load", "equal:5", "--picture", "/no/such/p.png"), "--picture /no/such/p.png: cannot be written"),
        (("/no/such.yaml",), "/no/such.yaml: cannot read the job file"),
    ],
)
def test_mistakes_are_named(args: tuple[str, ...], message: str) -> None:
    assert message in refusal(*args)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"policy": "fcfs", "schedule_every": 4},
        {"policy": "mlfq"},
        {"policy": "sjf", "lengths": "signals"},
        {"batching": "static"},
        {"kv_tokens": 640, "preemption": "swap"},
        {"kv_tokens": 640, "preemption": "recompute", "policy": "fcfs", "eviction": "lru"},
    ],
    ids=str,
)
def test_the_engine_does_what_was_simulated(
    options: dict[str, Any], chat_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Step by step: the counters of a run and of its simulation with the run's lengths are the same."""
    monkeypatch.setattr("batchrunner.forecast.length_history.cache_folder", lambda: tmp_path)  # no other run's lengths
    rng = random.Random(0)
    heads = ("alpha beta gamma delta epsilon ", "one two three four five ", "")
    rows = [{"text": rng.choice(heads) * rng.randint(1, 3) + str(i), "n": rng.randint(3, 40)} for i in range(60)]
    write_jsonl(tmp_path / "in.jsonl", rows)
    job = {"name": "j", "output": "out", "sampling": {"max_tokens": {"column": "n"}}}
    options = {"max_running": 8, "max_batch_tokens": 128, "device": "cpu", "kv_tokens": 4096} | options
    loaded = job_file(chat_model, tmp_path, job, **options)
    real = run(loaded).run
    shape = ModelShape.from_config(chat_model, "float32")
    found = read_job_rows(loaded, None, None, shape.max_position)
    simulated = Simulator(loaded.engine, shape, Device.load("cpu"), text_of=found.text_of).run(found.rows).to_dict()
    for name in (
        "num_steps",
        "num_computed_tokens",
        "num_recomputed_tokens",
        "num_output_tokens",
        "num_preemptions",
        "num_displacements",
        "num_blocks_to_host",
        "num_blocks_from_host",
    ):
        assert simulated[name] == getattr(real, name), name
    assert simulated["hit_rate"] == real.num_cached_tokens / real.num_prompt_tokens


def test_no_torch_for_made_up_rows() -> None:
    code = "import sys; from batchrunner.cli.main import cli;"
    code += "cli(['simulate', '--load', 'equal:5'], standalone_mode=False);"
    code += "assert not {'torch', 'transformers'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
