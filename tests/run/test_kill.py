"""kill -9 at random instants: nothing lost, nothing twice, little computed again."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from batchrunner.engine.model.model_files import find_model
from tests.engine.exactness import TIE, Reference
from tests.jobs import read_output, write_jsonl
from tests.models import SMOLLM2

NUM_ROWS = 300
TOPICS = ("tea", "rain", "bridges", "cats", "maps", "bread", "chess", "trains", "glass", "salt")


def write_job(folder: Path, output: str) -> Path:
    rng = random.Random(0)
    rows = [{"id": i, "text": f"{TOPICS[i % 10]} and {rng.choice(TOPICS)}, number {i}"} for i in range(NUM_ROWS)]
    write_jsonl(folder / "in.jsonl", rows)
    job = {"name": "j", "input": "in.jsonl", "output": output, "prompt": "Write a line about {{ text }}:"}
    job |= {"sampling": {"max_tokens": 12}}
    engine = {"kv_tokens": 8192, "max_running": 16}
    path = folder / f"{output}.yaml"
    path.write_text(yaml.safe_dump({"model": SMOLLM2, "engine": engine, "jobs": [job]}))
    return path


def start(job: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "from batchrunner.cli.main import main; main()", "submit", str(job), "--json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def finish(job: Path) -> dict[str, Any]:
    process = start(job)
    out, _ = process.communicate()
    assert process.returncode == 0
    summary: dict[str, Any] = json.loads(out)["jobs"][0]
    return summary


def progress(folder: Path) -> dict[str, Any]:
    path = folder / ".batchrun" / "progress.json"
    values: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return values


def computed_tokens(folder: Path) -> int:
    """Tokens the killed run had computed at its last note, at most a second before it died."""
    return int(progress(folder).get("run", {}).get("num_computed_tokens", 0))


def check_against(reference_folder: Path, folder: Path) -> None:
    """Every row once and in order, its answer the undisturbed one; where it is not, transformers' logits tie."""
    expected, got = read_output(reference_folder).to_pylist(), read_output(folder).to_pylist()
    assert [row["id"] for row in got] == list(range(NUM_ROWS))
    different = [(a, b) for a, b in zip(expected, got, strict=True) if a["response"] != b["response"]]
    assert len(different) < 0.01 * NUM_ROWS, different
    if different:
        model_folder = find_model(SMOLLM2).folder
        reference = Reference(model_folder)
        from batchrunner.engine.text.tokenizer import Tokenizer

        tokenizer = Tokenizer(model_folder)
        for a, b in different:
            prompt = tokenizer.encode_prompt(f"Write a line about {a['text']}:")
            left, right = ([*prompt, *tokenizer.encode_prompt(row["response"])] for row in (a, b))
            position = next(i for i, (x, y) in enumerate(zip(left, right, strict=False)) if x != y)
            logits = reference.logits_after(left[:position])
            assert abs(float(logits[left[position]] - logits[right[position]])) <= TIE
    for row in got:
        assert row["_batchrun"]["request_id"] == expected[row["id"]]["_batchrun"]["request_id"]
        assert row["_batchrun"]["error"] is None


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, float]:
    """The folder of a run left alone, the tokens it computed, and the seconds it took from start to end."""
    folder = tmp_path_factory.mktemp("kill")
    started = time.monotonic()
    summary = finish(write_job(folder, "undisturbed"))
    return folder, summary["run"]["num_computed_tokens"], time.monotonic() - started


@pytest.mark.slow
def test_twenty_kills_in_a_row(undisturbed: tuple[Path, int, float]) -> None:
    folder, _, seconds = undisturbed
    job = write_job(folder, "killed")
    rng = random.Random(1)
    for _ in range(20):
        process = start(job)
        time.sleep(rng.uniform(0, min(seconds, 20.0)))
        process.kill()
        process.communicate()
    finish(job)
    check_against(folder / "undisturbed", folder / "killed")


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.3, 0.7])
def test_a_single_kill_costs_little(undisturbed: tuple[Path, int, float], share: float) -> None:
    folder, alone, _ = undisturbed
    output = f"once-{share}"
    job = write_job(folder, output)
    process = start(job)
    while progress(folder / output).get("num_done", 0) < share * NUM_ROWS:
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.communicate()
    before = computed_tokens(folder / output)
    after = finish(job)["run"]["num_computed_tokens"]
    check_against(folder / "undisturbed", folder / output)
    twice = (before + after - alone) / alone
    print(f"killed after {before} of {alone} tokens: {twice:.1%} computed twice", file=sys.stderr)
    assert 0 < before < alone
    assert twice < 0.10
    assert os.path.exists(folder / output / "_SUCCESS")  # noqa: PTH110
