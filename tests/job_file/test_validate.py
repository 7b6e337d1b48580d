"""`batchrun validate` and the help: what they tell before anything runs."""

import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from batchrunner.cli.main import cli
from batchrunner.errors import OutputError, UsageError
from batchrunner.job_file.read import build_job_file
from batchrunner.job_file.validate import check_job_file


def check(folder: Path, output: str) -> dict[str, Any]:
    """Facts about a job with this output; its model is a folder, its input a file of five bytes."""
    (folder / "in.jsonl").write_text("{}\n{}")
    job = {"name": "j", "input": "in.jsonl", "output": output, "prompt": "x"}
    return check_job_file(build_job_file({"model": ".", "jobs": [job]}, {}, folder, "jobs.yaml"))[0]


@pytest.mark.parametrize("output", ["out", "deep/er/out", "there"])
def test_an_output_that_can_be_made_is_fine_and_is_not_made(tmp_path: Path, output: str) -> None:
    (tmp_path / "there").mkdir()
    assert check(tmp_path, output) == {"name": "j", "num_files": 1, "num_bytes": 5, "output": str(tmp_path / output)}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "there"]


@pytest.mark.parametrize("output", ["in.jsonl", "in.jsonl/out", "in.jsonl/deep/out"])
def test_an_output_in_the_place_of_a_file_is_refused(tmp_path: Path, output: str) -> None:
    with pytest.raises(OutputError, match=r"in\.jsonl is there and is no folder"):
        check(tmp_path, output)


def test_an_output_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("gone")
    with pytest.raises(OutputError, match="symbolic link"):
        check(tmp_path, "link")


@pytest.mark.parametrize("output", ["locked", "locked/out"])
def test_an_output_in_a_folder_that_cannot_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    (tmp_path / "locked").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "locked")  # root may write everywhere
    with pytest.raises(OutputError, match=r"the folder .*locked is not writable"):
        check(tmp_path, output)


def test_the_help_lists_exit_codes_and_cuts_no_verb_off() -> None:
    text = CliRunner().invoke(cli, ["--help"], terminal_width=80).output
    assert not any(line.endswith("...") for line in text.splitlines()[1:])
    assert all(f" {code}  " in text for code in (0, 3, 64, 65, 69, 73, 74, 75, 78, 130))


@pytest.mark.parametrize(
    ("names", "count"), [(["a"], "1 input file, 1 byte →"), (["a", "b"], "2 input files, 2 bytes →")]
)
def test_one_file_is_one_file(tmp_path: Path, names: list[str], count: str) -> None:
    for name in names:
        (tmp_path / f"{name}.jsonl").write_text(" ")
    (tmp_path / "jobs.yaml").write_text(
        "model: .\njobs:\n  - {name: j, input: '*.jsonl', output: out, prompt: x}\n", encoding="utf-8"
    )
    assert count in CliRunner().invoke(cli, ["validate", str(tmp_path / "jobs.yaml")]).output


def test_status_takes_overrides_with_a_job_file_only(tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text("model: .\njobs:\n  - {name: j, input: a, output: out, prompt: x}\n")
    options = ["-o", "jobs.j.output=other"]
    assert "/other" in CliRunner().invoke(cli, ["status", str(tmp_path / "jobs.yaml"), *options]).output
    refused = CliRunner().invoke(cli, ["status", str(tmp_path), *options])
    assert isinstance(refused.exception, UsageError)
