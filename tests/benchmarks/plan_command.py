"""`batchrun plan` from the text of the rows to the figures: time and memory, from 0.2 to 2 million rows.

Rows of 200 tokens with one of 1,000 prefixes of 100 tokens, shuffled, in a Parquet file. Each size is planned by the
command, in a process of its own. Needs 8 GB of disk.

    .venv/bin/python -m tests.benchmarks.plan_command MODEL [FOLDER]
"""

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq

from tests.benchmarks.plan_speed import NUM_PREFIX_TOKENS, NUM_PREFIXES, NUM_ROWS, NUM_TOKENS, WATCH_EVERY, status_bytes

BATCHRUN = [sys.executable, "-c", "from batchrunner.cli.main import main; main()"]
ROWS_PER_GROUP = 50_000
# A token each, with the space before them.
WORDS = ["time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school", "state"]


def text(rng: random.Random, num_words: int) -> str:
    return " " + " ".join(rng.choices(WORDS, k=num_words))


def write_rows(path: Path, num_rows: int) -> None:
    rng = random.Random(0)
    prefixes = [text(rng, NUM_PREFIX_TOKENS) for _ in range(NUM_PREFIXES)]
    schema = pa.schema([("text", pa.string())])
    with pq.ParquetWriter(path, schema) as writer:
        for _ in range(0, num_rows, ROWS_PER_GROUP):
            rows = [rng.choice(prefixes) + text(rng, NUM_TOKENS - NUM_PREFIX_TOKENS) for _ in range(ROWS_PER_GROUP)]
            writer.write_table(pa.table({"text": rows}, schema))


def measure(model: str, folder: Path, num_rows: int) -> str:
    write_rows(folder / "in.parquet", num_rows)
    job = {"name": "rows", "input": "in.parquet", "output": f"out{num_rows}", "prompt": {"column": "text"}}
    (folder / "jobs.yaml").write_text(json.dumps({"model": model, "engine": {"kv_tokens": 8192}, "jobs": [job]}))
    started, max_resident = time.perf_counter(), 0
    command = [*BATCHRUN, "plan", "jobs.yaml", "--json"]
    with (folder / "plan.json").open("w") as out, subprocess.Popen(command, cwd=folder, stdout=out) as process:
        while process.poll() is None:
            max_resident = max(max_resident, status_bytes(process.pid, "VmHWM"))
            time.sleep(WATCH_EVERY)
    seconds = time.perf_counter() - started
    plan = json.loads((folder / "plan.json").read_text())
    job_plan = plan["jobs"][0]
    return (
        f"| {num_rows:,} | {seconds:.1f} | {num_rows / seconds:,.0f} | {job_plan['num_prompt_tokens']:,} "
        f"| {job_plan['num_tokens_to_compute']:,} | {max_resident / 1e6:,.0f} |"
    )


def main(model: str, where: str | None) -> None:
    print("| rows | seconds | rows/s | prompt tokens | to compute | resident MB |")
    print("|---:|---:|---:|---:|---:|---:|")
    for num_rows in NUM_ROWS:
        with TemporaryDirectory(dir=where) as folder:
            print(measure(model, Path(folder), num_rows), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
