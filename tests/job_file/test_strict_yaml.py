"""YAML of a job file: plain, without a key twice, and never a bomb."""

from pathlib import Path

import pytest

from batchrunner.job_file.strict_yaml import MAX_ALIASES
from tests.jobs import VALID, load, load_refusal


def test_a_key_written_twice_is_refused_with_its_line(tmp_path: Path) -> None:
    text = VALID + "    output: elsewhere\n"
    assert load_refusal(tmp_path, text).endswith("jobs.yaml: line 11: the key 'output' is there twice")


def test_merge_keys_are_no_duplicates_and_own_values_win(tmp_path: Path) -> None:
    text = """\
model: m
jobs:
  - &first {name: a, input: i.jsonl, output: oa, prompt: x, sampling: {max_tokens: 5}}
  - &second {<<: *first, name: b, output: ob}
  - {<<: *second, name: c, output: oc}
"""
    jobs = load(tmp_path, text).jobs
    assert [(job.name, Path(job.output).name, job.prompt, job.sampling.max_tokens) for job in jobs] == [
        ("a", "oa", "x", 5),
        ("b", "ob", "x", 5),
        ("c", "oc", "x", 5),
    ]


def test_too_many_aliases_are_refused(tmp_path: Path) -> None:
    aliases = ", ".join(["*a"] * (MAX_ALIASES + 1))
    assert "more than 100 YAML aliases" in load_refusal(tmp_path, f"model: &a m\njobs: [{aliases}]\n")


def test_as_many_aliases_as_allowed_are_read(tmp_path: Path) -> None:
    aliases = ", ".join(["*a"] * MAX_ALIASES)
    text = f"model: &a m\njobs:\n  - {{name: a, input: [{aliases}], output: o, prompt: x}}\n"
    assert len(load(tmp_path, text).jobs[0].inputs) == MAX_ALIASES


def test_an_alias_bomb_of_few_aliases_is_refused(tmp_path: Path) -> None:
    levels = [f"  - &l{i} [{', '.join([f'*l{i - 1}'] * 10)}]" for i in range(1, 6)]  # 50 aliases, 10**5 values
    text = "\n".join(["model: m", "jobs:", "  - &l0 x", *levels])
    message = load_refusal(tmp_path, text).replace(str(tmp_path), "")
    assert "alias" in message or "large" in message


@pytest.mark.parametrize(
    "text", ["model: &a [*a]\njobs: []\n", "model: " + "[" * 1200 + "]" * 1200], ids=["self", "deep"]
)
def test_endless_nesting_is_refused(tmp_path: Path, text: str) -> None:
    load_refusal(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        "? [a, b]\n: 1\n",
        "model: 2024-13-45\n",
        "model: 0x_\n",
        "model: !!int abc\n",
        "model: !!bool abc\n",
        "model: !!timestamp abc\n",
        f"model: {'9' * 5000}\n",
        "model: {{ text }}\n",
        "model: m\non: x\n",
        'model: "\\ud800"\njobs: []\n',
    ],
)
def test_values_that_yaml_cannot_build_are_refused(tmp_path: Path, text: str) -> None:
    load_refusal(tmp_path, text)


@pytest.mark.parametrize(
    "text", ["model: [\n", "a: b: c\n", "model:\t- x\n", "model: !!python/object:os.system x\n", "model: \x07\n"]
)
def test_what_is_not_plain_yaml_is_refused(tmp_path: Path, text: str) -> None:
    assert load_refusal(tmp_path, text).startswith(f"{tmp_path / 'jobs.yaml'}: not valid YAML: ")
