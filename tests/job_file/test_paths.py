"""The paths in a job file: taken from its folder, and refused where no file system holds them."""

from pathlib import Path
from typing import Any

import pytest

from batchrunner.data.input.sources import find_inputs
from batchrunner.errors import DataError
from batchrunner.job_file.read import load_job_file
from batchrunner.spec.job import JobSpec
from tests.jobs import build, document, refusal


def test_inputs_is_a_tuple_for_one_input_and_for_many() -> None:
    common: dict[str, Any] = {"name": "a", "output": "o", "prompt": "x"}
    assert JobSpec(input="a.jsonl", **common).inputs == ("a.jsonl",)
    assert JobSpec(input=("a.jsonl", "b.jsonl"), **common).inputs == ("a.jsonl", "b.jsonl")


def test_relative_paths_are_taken_from_the_folder_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "jobs"
    (folder / "weights").mkdir(parents=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (folder / "jobs.yaml").write_text(
        "model: weights\njobs:\n  - {name: a, input: ../in.jsonl, output: ./out/, prompt: x}\n"
    )
    monkeypatch.chdir(elsewhere)
    found = load_job_file("../jobs/jobs.yaml")
    assert found.model == str(folder / "weights")
    assert found.jobs[0].inputs == (str(tmp_path / "in.jsonl"),)
    assert found.jobs[0].output == str(folder / "out")


@pytest.mark.parametrize(
    ("model", "found"),
    [
        ("org/name", "org/name"),
        ("package:NAME/FILE.gguf", "package:NAME/FILE.gguf"),
        ("./org/name", "/base/org/name"),
        ("../m", "/m"),
        ("/abs/m", "/abs/m"),
        ("~/m", "/home/me/m"),
    ],
)
def test_a_model_is_a_path_only_if_it_looks_like_one(model: str, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert build(document() | {"model": model}).model == found


def test_absolute_home_and_remote_inputs_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    inputs = ["/abs/x.jsonl", "~/y.jsonl", "s3://bucket/z.jsonl", "hf://org/data"]
    assert build(document(input=inputs)).jobs[0].inputs == (
        "/abs/x.jsonl",
        "/home/me/y.jsonl",
        "s3://bucket/z.jsonl",
        "hf://org/data",
    )


@pytest.mark.parametrize("field", ["input", "output"])
def test_the_home_of_an_unknown_user_is_refused(field: str) -> None:
    assert "nosuchuser" in refusal(document(**{field: "~nosuchuser-br/out"}))


@pytest.mark.parametrize("field", ["input", "output"])
@pytest.mark.parametrize("path", ["x" * 256, "é" * 128, "/x" * 2500])
def test_a_path_no_file_system_holds_is_refused(field: str, path: str) -> None:
    assert f"jobs[0].{field}: {path[:1]!r}"[:-1] in refusal(document(**{field: path}))


def test_brackets_in_the_folder_of_the_job_file_are_no_glob(tmp_path: Path) -> None:
    folder = tmp_path / "run[1]"
    for name in ("run[1]/a.jsonl", "run[1]/b[1].jsonl", "run1/a.jsonl", "run1/gone.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    for written, found in [
        ("*.jsonl", ["a", "b[1]"]),
        ("a.jsonl", ["a"]),
        ("b[1].jsonl", ["b[1]"]),
        (".", ["a", "b[1]"]),
    ]:
        job = build(document(input=written), base=folder).jobs[0]
        assert [file.path for file in find_inputs(job.inputs)] == [folder / f"{name}.jsonl" for name in found]
    with pytest.raises(DataError, match=r"run\[1\]/gone\.jsonl': no such file"):
        find_inputs(build(document(input="gone.jsonl"), base=folder).jobs[0].inputs)


def test_a_model_name_too_long_for_a_path_is_no_crash() -> None:
    assert build(document() | {"model": "x" * 5000}).model == "x" * 5000
