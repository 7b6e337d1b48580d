"""How long the order of all prompts of a job takes, and what memory and disk, from 0.2 to 2 million rows.

Rows of 200 tokens with one of 1,000 prefixes of 100 tokens, shuffled, read from an Arrow file. Each size runs in a
process of its own, which is watched from outside. Needs 4 GB of disk.

    .venv/bin/python -m tests.benchmarks.plan_speed [FOLDER]
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

from batchrunner.plan.prefix_order import order_by_prefix
from batchrunner.plan.prefix_tree import top_prefixes

NUM_ROWS = (200_000, 500_000, 1_000_000, 2_000_000)
NUM_PREFIXES, NUM_TOKENS, NUM_PREFIX_TOKENS = 1_000, 200, 100
VOCABULARY = 49_152
ROWS_PER_BATCH = 5_000
WATCH_EVERY = 0.02  # seconds
REPEATS = 2  # the quicker one counts
SCHEMA = pa.schema([("row", pa.int64()), ("prompt", pa.large_binary())])


@dataclass(frozen=True, slots=True)
class Measured:
    """Bytes are the most that were seen: resident as the kernel counts it, anonymous, on disk."""

    num_rows: int
    order_seconds: float
    top_seconds: float
    num_tree_tokens: int
    max_resident: int
    max_anonymous: int
    max_spilled: int


def write_prompts(path: Path, num_rows: int) -> None:
    rng = np.random.default_rng(0)
    prefixes = rng.integers(0, VOCABULARY, (NUM_PREFIXES, NUM_PREFIX_TOKENS))
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
        for begin in range(0, num_rows, ROWS_PER_BATCH):
            tokens = rng.integers(0, VOCABULARY, (ROWS_PER_BATCH, NUM_TOKENS)).astype(">u4")
            tokens[:, :NUM_PREFIX_TOKENS] = prefixes[rng.integers(0, NUM_PREFIXES, ROWS_PER_BATCH)]
            prompts = pa.array([row.tobytes() for row in tokens], pa.large_binary())
            writer.write_batch(pa.record_batch([pa.array(range(begin, begin + ROWS_PER_BATCH)), prompts], SCHEMA))


def read_prompts(path: Path) -> Iterator[pa.RecordBatch]:
    """Into memory a batch at a time: what is mapped counts as resident once it is read."""
    with pa.OSFile(str(path)) as source:
        file = pa.ipc.open_file(source)
        for number in range(file.num_record_batches):
            yield file.get_batch(number)


def plan(path: Path) -> None:
    """The part that is measured: prints seconds and the size of the tree, and its own greatest resident size."""
    started = time.perf_counter()
    order = order_by_prefix(read_prompts(path), path.parent)
    ordered = time.perf_counter()
    assert len(top_prefixes(order, 10)) == 10
    seconds = ordered - started, time.perf_counter() - ordered
    # VmHWM, not ru_maxrss: that one begins with the resident size of the parent, as it was at the fork.
    print(*seconds, order.num_tree_tokens, status_bytes("self", "VmHWM"))


def status_bytes(process: int | str, field: str) -> int:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return 0  # a process that has just ended


def measure(path: Path, num_rows: int) -> Measured:
    subprocess.run([sys.executable, __file__, "write", str(path), str(num_rows)], check=True)
    max_anonymous = max_spilled = 0
    with subprocess.Popen([sys.executable, __file__, "plan", str(path)], stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            max_anonymous = max(max_anonymous, status_bytes(process.pid, "RssAnon"))
            max_spilled = max(max_spilled, bytes_on_disk(path.parent) - path.stat().st_blocks * 512)
            time.sleep(WATCH_EVERY)
        assert process.returncode == 0 and process.stdout is not None
        order_seconds, top_seconds, num_tree_tokens, max_resident = process.stdout.read().split()
    path.unlink()
    return Measured(
        num_rows,
        float(order_seconds),
        float(top_seconds),
        int(num_tree_tokens),
        int(max_resident),
        max_anonymous,
        max_spilled,
    )


def bytes_on_disk(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:  # removed in between
            continue
    return total


def growth(all_measured: list[Measured]) -> float:
    """The exponent k of seconds ~ rows^k, fitted."""
    rows = [measured.num_rows for measured in all_measured]
    seconds = [measured.order_seconds + measured.top_seconds for measured in all_measured]
    return float(np.polyfit(np.log(rows), np.log(seconds), 1)[0])


def main() -> None:
    print("| rows | s, order | s, top prefixes | rows/s | tree tokens | resident MB | anonymous MB | on disk MB |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|")
    all_measured = []
    with TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
        for num_rows in NUM_ROWS:
            tries = [measure(Path(folder) / "prompts.arrow", num_rows) for _ in range(REPEATS)]
            found = min(tries, key=lambda measured: measured.order_seconds)
            all_measured.append(found)
            cells = [
                f"{found.num_rows:,}",
                f"{found.order_seconds:.1f}",
                f"{found.top_seconds:.1f}",
                f"{found.num_rows / (found.order_seconds + found.top_seconds):,.0f}",
                f"{found.num_tree_tokens:,}",
                *(f"{n / 1e6:,.0f}" for n in (found.max_resident, found.max_anonymous, found.max_spilled)),
            ]
            print(f"| {' | '.join(cells)} |", flush=True)
    print(f"\nseconds grow with rows^{growth(all_measured):.2f}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["write", path, num_rows]:
            write_prompts(Path(path), int(num_rows))
        case ["plan", path]:
            plan(Path(path))
        case _:
            main()
