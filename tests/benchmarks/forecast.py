"""How right the plan was: forecast of tokens and of seconds against the run, one job after the other.

python -m tests.benchmarks.forecast MODEL FILE.jsonl[:KV_TOKENS] …

A row of a file has a prompt and its max_tokens, as those of the race have. The tokens are forecast by `batchrun plan`,
the seconds in the run, after its sample. What earlier runs have taught of the machine is forgotten first.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from batchrunner.cache_folder import cache_folder
from batchrunner.job_file.read import build_job_file
from batchrunner.preview.planning import plan_job_file
from batchrunner.run.progress import LineProgress
from batchrunner.run.submit import run_job_file
from batchrunner.spec.job import JobFile

KV_TOKENS = 90_000


def main(model: str, files: list[str]) -> None:
    print("| workload | tokens to compute, forecast | computed | seconds, forecast | taken | off by |")
    print("|---|---:|---:|---:|---:|---:|")
    for file in files:
        with tempfile.TemporaryDirectory() as folder:
            shutil.rmtree(cache_folder() / "speeds", ignore_errors=True)
            path, _, kv_tokens = file.partition(":")
            job_file = _job_file(model, Path(path).resolve(), Path(folder), int(kv_tokens or KV_TOKENS))
            plan = plan_job_file(job_file)
            run = run_job_file(job_file, LineProgress(Console(stderr=True))).run
        computed = run.num_computed_prompt_tokens
        print(
            f"| {Path(path).stem} | {plan.forecast.num_tokens_to_compute:,} | {computed:,} "
            f"| {run.forecast_seconds:.1f} | {run.seconds:.1f} | {run.forecast_seconds / run.seconds - 1:+.1%} |",
            flush=True,
        )


def _job_file(model: str, path: Path, folder: Path, kv_tokens: int) -> JobFile:
    job = {
        "name": path.stem,
        "input": str(path),
        "output": str(folder / "out"),
        "prompt": {"column": "prompt"},
        "sampling": {"max_tokens": {"column": "max_tokens"}, "ignore_eos": True},
    }
    document = {"model": model, "engine": {"dtype": "float32", "kv_tokens": kv_tokens}, "jobs": [job]}
    return build_job_file(document, {}, base=Path.cwd(), label="forecast")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as cache:
        os.environ["BATCHRUNNER_CACHE"] = cache
        main(sys.argv[1], sys.argv[2:])
