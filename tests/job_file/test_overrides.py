"""Overrides of a job file: where they reach, and what they may not."""

from pathlib import Path
from typing import Any

import pytest

from batchrunner.errors import JobFileError, UsageError
from batchrunner.job_file.overrides import parse_override
from tests.jobs import build, document, load, refusal, two_jobs


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("engine.block_size=32", ("engine.block_size", 32)),
        ("jobs.0.prompt=a=b", ("jobs.0.prompt", "a=b")),
        ("engine.kv_tokens=", ("engine.kv_tokens", None)),
        ("jobs.0.input=[a, b]", ("jobs.0.input", ["a", "b"])),
        ("engine.prefix_caching=false", ("engine.prefix_caching", False)),
    ],
)
def test_an_override_is_split_and_its_value_read_as_yaml(text: str, parsed: tuple[str, Any]) -> None:
    assert parse_override(text) == parsed


@pytest.mark.parametrize("text", ["engine.block_size", "=3", ""])
def test_an_override_that_is_no_pair_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match=r"-o .*KEY=VALUE"):
        parse_override(text)


@pytest.mark.parametrize(
    "value",
    [
        "[1",
        "!!python/name:os.system x",
        "{{ text }}",
        "*.jsonl",
        "&a [*a]",
        "[" * 1200,
        "2024-13-45",
        "!!bool x",
        "\x07",
    ],
)
def test_an_override_that_is_no_yaml_is_refused_with_the_remedy(value: str) -> None:
    with pytest.raises(JobFileError, match=r"-o .*put the value in quotes, as in -o 'a\.b=.….'"):
        parse_override(f"a.b={value}")


@pytest.mark.parametrize("step", ["1", "two"])
def test_an_override_finds_a_job_by_index_and_by_name(step: str) -> None:
    found = build(two_jobs(), {f"jobs.{step}.output": "new", f"jobs.{step}.sampling.max_tokens": 7})
    assert [job.output for job in found.jobs] == ["/base/out", "/base/new"]
    assert [job.sampling.max_tokens for job in found.jobs] == [None, 7]


def test_an_override_makes_the_sections_it_needs() -> None:
    assert build(document(), {"engine.block_size": 32}).engine.block_size == 32
    assert build(document() | {"engine": None}, {"engine.block_size": 32}).engine.block_size == 32


def test_an_override_may_replace_an_item_of_a_list() -> None:
    job = {"name": "new", "input": "i.jsonl", "output": "o", "prompt": "x"}
    assert [job.name for job in build(two_jobs(), {"jobs.two": job}).jobs] == ["one", "new"]


@pytest.mark.parametrize(
    ("dotted", "message"),
    [
        ("jobs.2.output", "override jobs.2.output: there is no item '2'"),
        ("jobs.-1.output", "override jobs.-1.output: there is no item '-1'"),
        ("jobs.three.output", "override jobs.three.output: there is no item 'three'"),
        ("jobs.three", "override jobs.three: there is no item 'three'"),
        ("model.x", "override model.x: 'x' is below a plain value"),
        ("model.x.y", "override model.x.y: 'x' is below a plain value"),
    ],
)
def test_an_override_of_what_is_not_there_is_refused(dotted: str, message: str) -> None:
    assert refusal(two_jobs(), {dotted: "x"}) == f"jobs.yaml: {message}"


def test_an_override_is_checked_like_the_file() -> None:
    assert refusal(document(), {"engine.polcy": "x"}).endswith("engine.polcy: unknown key; did you mean 'policy'?")
    assert "engine.block_size: -1 " in refusal(document(), {"engine.block_size": -1})


def test_an_override_by_index_replaces_that_item_and_no_equal_one() -> None:
    found = build(document(input=["a.jsonl", "a.jsonl"]), {"jobs.0.input.1": "b.jsonl"})
    assert found.jobs[0].inputs == ("/base/a.jsonl", "/base/b.jsonl")


def test_an_override_of_one_job_leaves_a_job_that_shares_a_section_alone(tmp_path: Path) -> None:
    text = """\
model: m
jobs:
  - {name: a, input: i.jsonl, output: oa, prompt: x, sampling: &s {max_tokens: 5}}
  - {name: b, input: i.jsonl, output: ob, prompt: x, sampling: *s}
"""
    found = load(tmp_path, text, {"jobs.a.sampling.max_tokens": 7})
    assert [job.sampling.max_tokens for job in found.jobs] == [7, 5]


@pytest.mark.parametrize("name", ["qwen2.5", "2.5", "a.b.c"])
def test_an_override_finds_a_job_whose_name_has_a_dot(name: str) -> None:
    content = document(name="a")
    content["jobs"].append(content["jobs"][0] | {"name": name, "output": "out2"})
    assert build(content, {f"jobs.{name}.output": "new"}).jobs[1].output == "/base/new"
    assert build(content, {f"jobs.{name}.sampling.seed": 3}).jobs[1].sampling.seed == 3


def test_overrides_leave_the_document_and_their_values_as_they_were() -> None:
    content, sampling = two_jobs(), {"max_tokens": 5}
    overrides = {"jobs.0.sampling": sampling, "jobs.one.sampling.max_tokens": 7, "engine.block_size": 8}
    assert build(content, overrides).jobs[0].sampling.max_tokens == 7
    assert (content, sampling) == (two_jobs(), {"max_tokens": 5})


def test_a_step_that_only_looks_like_a_digit_is_refused() -> None:
    assert "there is no item '²'" in refusal(document(), {"jobs.².output": "x"})
