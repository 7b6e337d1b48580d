"""Going through all rows of a spool: what is there, and that it takes no memory."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from batchrunner.data.spool import writer as spool_writer
from batchrunner.identity import prompt_bytes
from tests import ROOT
from tests.data.spools import spool_of

BROKEN = (
    b'{"t": "a"}\n{"t": null}\nno json\n{"t": "bb"}\n{"t": " "}\n{"t": "a", "n": 7, "p": 3, "temp": 1}\n{"t": "c"}\n'
)


@pytest.mark.parametrize("segment_rows", [1, 2, 3, 100])
def test_the_prompts_come_in_order_with_the_numbers_of_their_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segment_rows: int
) -> None:
    monkeypatch.setattr(spool_writer, "SEGMENT_ROWS", segment_rows)
    monkeypatch.setattr(spool_writer, "BATCH_ROWS", 2)
    batches = list(spool_of(tmp_path, BROKEN).prompt_batches())
    assert {str(field.type) for batch in batches for field in batch.schema} == {"int64", "large_binary"}
    found = [(row["row"], row["prompt"]) for batch in batches for row in batch.to_pylist()]
    assert found == [
        (row, prompt_bytes([ord(letter) for letter in text])) for row, text in [(0, "a"), (3, "bb"), (5, "a"), (6, "c")]
    ]


def test_the_parameters_of_all_rows_are_columns(tmp_path: Path) -> None:
    sampling = {"max_tokens": {"column": "n"}, "temperature": {"column": "temp"}, "ignore_eos": True}
    table = spool_of(tmp_path, BROKEN, sampling=sampling, priority={"column": "p"}).table
    assert "prompt" not in table.column_names
    assert table["max_tokens"].to_pylist() == [256, None, None, 256, None, 7, 256]
    assert table["ignore_eos"].to_pylist() == [True, None, None, True, None, True, True]
    assert table["is_greedy"].to_pylist() == [True, None, None, True, None, False, True]
    assert table["priority"].to_pylist() == [0, None, None, 0, None, 3, 0]
    assert [text is None for text in table["sampling"].to_pylist()] == [True] * 5 + [False, True]


def test_the_lengths_of_all_prompts_are_known(tmp_path: Path) -> None:
    assert spool_of(tmp_path, BROKEN).num_tokens.to_pylist() == [1, None, None, 2, None, 1, 1]


def test_some_prompts_are_read_or_mapped_and_those_mapped_outlive_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_writer, "SEGMENT_ROWS", 2)
    spool, rows = spool_of(tmp_path, BROKEN), np.array([6, 0, 3])
    expected = [[ord("c")], [ord("a")], [ord("b")] * 2]
    assert spool.token_ids(rows) == spool.mapped_token_ids(rows) == expected
    shutil.rmtree(tmp_path / "spool")
    assert spool.mapped_token_ids(rows) == expected


SCAN = """
import re, sys
from pathlib import Path
from batchrunner.data.spool.spool import prepare_spool
from tests.data.spools import LetterEncoder, job_over

class Long(LetterEncoder):
    def encode_prompts(self, texts):
        return [[7] * 2000 for text in texts]

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024

folder, num_rows = Path(sys.argv[1]), 16_000
job = job_over(folder, [{"t": "x"}] * num_rows)
spool = prepare_spool(job, Long(), folder / "spool", lambda num_rows: None)
size = sum(path.stat().st_size for path in (folder / "spool").iterdir())
assert size > 120 * 10**6
for _ in spool.prompt_batches():
    break
before, peak, num_seen = resident(), 0, 0
for batch in spool.prompt_batches():
    num_seen += batch.num_rows
    assert batch.column("prompt")[0].as_py()[-1] == 7
    peak = max(peak, resident())
assert num_seen == num_rows
print(peak - before)
"""


def test_a_scan_does_not_make_the_file_resident(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCAN, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert int(done.stdout) < 40 * 10**6  # of 128 MB; a batch has 8
