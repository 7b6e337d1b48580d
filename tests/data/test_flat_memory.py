"""Memory stays flat in the number of rows, from the input to the output."""

import subprocess
import sys
from pathlib import Path

ROW_BYTES = 600
SCRIPT = """
import json, re, sys
from pathlib import Path
import pyarrow as pa
from batchrunner.data.outputs import Results, output_schema, output_tables, write_output_files
from batchrunner.data.spool.spool import prepare_spool
from batchrunner.plan.order import wanted_rows
from batchrunner.checkpoint.parts import SCHEMA
from batchrunner.spec.job import JobSpec

folder, num_rows, row_bytes = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
peak = 0

def measure(*_):
    # Pages of memory-mapped files are the system's to take back; what counts is the memory of our own.
    global peak
    status = Path("/proc/self/status").read_text()
    peak = max(peak, int(re.search(r"RssAnon:\\s+(\\d+)", status)[1]) * 1024)

class Bytes:
    identity = "bytes"
    def encode_prompts(self, texts):
        return [list(text.encode()) for text in texts]

with (folder / "in.jsonl").open("w") as file:
    for i in range(num_rows):
        file.write(json.dumps({"id": i, "text": f"{i} ".ljust(row_bytes, "x")}) + "\\n")
job = JobSpec(name="j", input=str(folder / "in.jsonl"), output=str(folder / "out"), prompt="{{ text }}")
spool = prepare_spool(job, Bytes(), folder / "spool", measure)
assert wanted_rows(spool.request_ids, pa.array([], pa.binary(16))).sum() == num_rows
for batch in spool.prompt_batches():
    measure()

def parts():
    for start in range(0, num_rows, 5000):
        ids = spool.request_ids.slice(start, 5000).to_pylist()
        rows = [{"request_id": i, "text": "y" * row_bytes, "finish_reason": "stop"} for i in ids]
        yield pa.Table.from_pylist(rows, SCHEMA)
        measure()

def measured(tables):
    for table in tables:
        yield table
        measure()

results = Results(parts(), folder / "results.arrow")
tables = measured(output_tables(spool, results, "response"))
files = write_output_files(tables, output_schema(spool, "response"), num_rows, folder)
assert sum(file.num_rows for file in files) == num_rows
print(peak)
"""


def peak(folder: Path, num_rows: int) -> int:
    folder.mkdir()
    arguments = [sys.executable, "-c", SCRIPT, str(folder), str(num_rows), str(ROW_BYTES)]
    done = subprocess.run(arguments, check=True, capture_output=True, text=True)
    return int(done.stdout)


def test_four_times_the_rows_take_little_more_memory(tmp_path: Path) -> None:
    few, many = peak(tmp_path / "few", 10_000), peak(tmp_path / "many", 40_000)
    print(f"{few / 2**20:.0f} MiB for 10,000 rows, {many / 2**20:.0f} MiB for 40,000")
    # Ids, order and positions take some hundred bytes a row; the rows and answers themselves would take 36 MB more.
    assert many - few < 30_000 * 300 + 8 * 2**20
