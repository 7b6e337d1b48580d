"""A job file is read from disk: its values and the defaults, its size and its encoding."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from batchrunner.errors import JobFileError
from batchrunner.job_file import read as job_file_module
from batchrunner.job_file.read import load_job_file
from batchrunner.spec.sampling import SamplingSpec
from batchrunner.spec.types import ColumnRef
from tests.jobs import VALID, build, document, load, load_refusal


def test_a_valid_file_is_read_with_its_values_and_the_defaults(tmp_path: Path) -> None:
    found = load(tmp_path, VALID)
    assert found.model == "m"
    assert found.engine.kv_memory == 8 * 2**30
    assert found.engine.policy == "fcfs"
    assert found.engine.block_size == 16
    (job,) = found.jobs
    assert job.name == "one"
    assert job.inputs == (str(tmp_path / "in/*.jsonl"), str(tmp_path / "more.parquet"))
    assert job.output == str(tmp_path / "out/one")
    assert isinstance(job.messages, tuple)
    assert [(message.role, message.content) for message in job.messages] == [
        ("system", "Be brief."),
        ("user", "{{ text }}"),
    ]
    assert job.sampling == SamplingSpec(max_tokens=5, seed=ColumnRef(column="s"))
    assert (job.column, job.columns, job.on_error) == ("response", None, "row")


def test_a_byte_order_mark_is_no_trouble(tmp_path: Path) -> None:
    assert load(tmp_path, b"\xef\xbb\xbf" + VALID.encode()).model == "m"


def test_the_parts_of_a_job_file_are_frozen() -> None:
    found = build(document())
    with pytest.raises(ValidationError, match="frozen"):
        found.jobs[0].name = "two"  # type: ignore[misc]


def test_what_is_not_utf8_is_refused(tmp_path: Path) -> None:
    assert load_refusal(tmp_path, "model: é".encode("latin-1")) == f"{tmp_path / 'jobs.yaml'}: not UTF-8 text"


def test_a_giant_file_is_not_read(tmp_path: Path) -> None:
    text = VALID + "#" * job_file_module.MAX_FILE_BYTES
    assert "larger than 1,000,000 bytes" in load_refusal(tmp_path, text)


def test_a_file_of_just_the_limit_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_file_module, "MAX_FILE_BYTES", len(VALID))
    assert load(tmp_path, VALID).model == "m"
    assert "larger than" in load_refusal(tmp_path, VALID + "#")


def test_a_file_that_is_not_there_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(JobFileError, match=r"none\.yaml: cannot read the job file: No such file or directory"):
        load_job_file(tmp_path / "none.yaml")


def test_a_folder_is_no_job_file(tmp_path: Path) -> None:
    with pytest.raises(JobFileError, match="cannot read the job file: Is a directory"):
        load_job_file(tmp_path)
