"""`batchrun bench` on a tiny model: what it measures, and what it writes."""

import json
from pathlib import Path

import pytest
import yaml

from batchrunner.bench.bench import run_bench
from batchrunner.bench.contests import Way, run_entrant
from batchrunner.bench.results import BatchPoint, Contest, Entrant
from batchrunner.bench.workloads import Workloads
from batchrunner.engine.model.model_files import find_model
from batchrunner.engine.model.prefix_groups import NO_GROUPS
from batchrunner.errors import DeviceError, OutputError, RowError
from batchrunner.kernels.attention_work import AttentionWork
from batchrunner.kernels.cpu.cpu_kernels import CpuKernels, CpuPlan
from batchrunner.spec.engine import EngineConfig
from tests.jobs import batchrun


def job_file(folder: Path, model: Path) -> Path:
    path = folder / "jobs.yaml"
    job = {"name": "a", "input": "rows.jsonl", "output": "out", "prompt": "{{ x }}"}  # there are no rows
    path.write_text(yaml.safe_dump({"model": str(model), "jobs": [job]}))
    return path


def test_bench_prints_tables_and_writes_json_and_a_picture(tiny_llama: Path, tmp_path: Path) -> None:
    job_file(tmp_path, tiny_llama)
    target = tmp_path / "new" / "folder"
    run = batchrun("bench", "jobs.yaml", "--rows", "20", "--max-batch", "5", "--output", target, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert all(text in run.stdout for text in ("share of the limit", "static batching", "policy fcfs", "prefix groups"))
    assert (target / "bench.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads((target / "bench.json").read_text())
    assert [point["num_requests"] for point in found["curve"]] == [1, 2, 4]
    assert all(point["limit_seconds"] > 0 and point["step_seconds"] > 0 for point in found["curve"])
    continuous, groups, policies = found["contests"]
    assert continuous["ours"]["num_steps"] < continuous["other"]["num_steps"]
    assert continuous["ours"]["num_computed_tokens"] == continuous["other"]["num_computed_tokens"]
    assert groups["ours"]["num_computed_tokens"] == groups["other"]["num_computed_tokens"]
    assert policies["ours"]["num_computed_tokens"] < policies["other"]["num_computed_tokens"]


def test_json_goes_to_stdout_alone(tiny_llama: Path, tmp_path: Path) -> None:
    job_file(tmp_path, tiny_llama)
    run = batchrun("bench", "jobs.yaml", "--rows", "2", "--max-batch", "1", "--json", cwd=tmp_path)
    assert json.loads(run.stdout)["model"] == str(tiny_llama)
    assert (tmp_path / "bench" / "bench.json").exists()


def test_a_folder_that_cannot_be_written_is_said_before_the_work(tmp_path: Path) -> None:
    job_file(tmp_path, tmp_path)  # no model either, which would be found out later
    (tmp_path / "file").write_text("")
    run = batchrun("bench", "jobs.yaml", "--output", "file/b", cwd=tmp_path)
    assert run.returncode == OutputError.exit_code
    assert "--output file/b: cannot be written" in run.stderr


def test_requests_alone_have_no_groups(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    num_levels: list[int] = []
    own = CpuKernels.plan

    def plan(self: CpuKernels, work: AttentionWork, block_size: int) -> CpuPlan:
        num_levels.append(len(work.levels))
        return own(self, work, block_size)

    monkeypatch.setattr(CpuKernels, "plan", plan)
    files, config = find_model(str(tiny_llama)), EngineConfig(kv_tokens=2048)
    rows = Workloads(vocabulary=100, max_tokens=256).annotate(8, num_shared=160, num_own=8, num_output=4)
    run_entrant(files, config, rows, Way("groups"))
    assert max(num_levels) > 0
    num_levels.clear()
    run_entrant(files, config, rows, Way("alone", group_rule=NO_GROUPS))
    assert max(num_levels) == 0


def test_a_row_that_fails_is_not_a_fast_row(tiny_llama: Path) -> None:
    rows = Workloads(vocabulary=100, max_tokens=256).flat(4, num_prompt=100)
    with pytest.raises(RowError, match="KV memory"):
        run_entrant(find_model(str(tiny_llama)), EngineConfig(kv_tokens=64), rows, Way("small"))


def test_a_curve_that_does_not_fit_says_so(tiny_llama: Path) -> None:
    with pytest.raises(DeviceError, match=r"for a batch of 16,777,216 requests.*smaller --max-batch"):
        run_bench(str(tiny_llama), EngineConfig(), num_rows=2, max_batch=2**24)


def test_ratios() -> None:
    point = BatchPoint(num_requests=8, step_seconds=0.5, limit_seconds=0.25)
    assert (point.tokens_per_second, point.limit_per_second, point.share_of_limit) == (16, 32, 0.5)
    contest = Contest("w", Entrant("ours", 2.0, 10, 1, 1), Entrant("other", 3.0, 10, 1, 1))
    assert (contest.ratio, contest.ours.rows_per_second) == (1.5, 5)


@pytest.mark.parametrize("max_tokens", [8, 100, 4096])
def test_workloads_fit_the_models_context(max_tokens: int) -> None:
    workloads = Workloads(vocabulary=50, max_tokens=max_tokens)
    for rows in (workloads.flat(5), workloads.mixed(30), workloads.annotate(9, num_instructions=2)):
        assert all(row.token_ids and row.max_tokens >= 1 for row in rows)
        assert all(len(row.token_ids) + row.max_tokens <= max_tokens for row in rows)
        assert all(3 <= token_id < 50 for row in rows for token_id in row.token_ids)
