"""The values of a job: every mistake is told in one line with field, value and remedy."""

from typing import Any

import pytest

from tests.jobs import document, refusal, two_jobs

NAME_RULE = "may have only A-Z, a-z, 0-9, '.', '_' and '-', and must begin with a letter or a digit"


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"input": []}, "input: the list is empty; name at least one file, glob or folder"),
        ({"input": {"a": 1}}, "input: input should be text or a list"),
        ({"input": ["a", 3]}, "input[1]: 3 input should be text; put it in quotes"),
        ({"input": ""}, "input: '' is no path; it is empty or has a zero byte"),
        ({"output": "a\0b"}, "output: 'a\\x00b' is no path; it is empty or has a zero byte"),
        ({"output": "s3://b/out"}, "output: 's3://b/out' remote outputs are not supported; give a folder"),
        ({"name": None}, "name: null input should be text"),
        ({"name": True}, "name: true input should be text; put it in quotes"),
        ({"prompt": 3}, "prompt: 3 input should be text or {column: NAME}"),
        ({"prompt": None, "messages": "text"}, "messages: 'text' input should be a list or {column: NAME}"),
        ({"prompt": None, "messages": ["text"]}, "messages[0]: 'text' input should be a mapping"),
        ({"prompt": None, "messages": [{"role": "user"}]}, "messages[0].content: this key is required"),
        ({"sampling": 3}, "sampling: 3 input should be a mapping"),
        (
            {"sampling": {"max_tokens": 1.5}},
            "sampling.max_tokens: 1.5 input should be a whole number or {column: NAME}",
        ),
        (
            {"sampling": {"max_tokens": {"column": 3}}},
            "sampling.max_tokens.column: 3 input should be text; put it in quotes",
        ),
        ({"sampling": {"max_tokens": {"colum": 3}}}, "sampling.max_tokens.colum: unknown key; did you mean 'column'?"),
        (
            {"sampling": {"max_tokens": {"int": 3, "column": "n"}}},
            "sampling.max_tokens.int: unknown key; known keys: column",
        ),
        ({"sampling": {"stop": ["a", 1]}}, "sampling.stop[1]: 1 input should be text; put it in quotes"),
        ({"sampling": {"ignore_eos": 5}}, "sampling.ignore_eos: 5 input should be true or false or {column: NAME}"),
        ({"sampling": {"top_k": 2**63}}, f"sampling.top_k: {2**63} input should be less than {2**63}"),
    ],
)
def test_one_mistake_gets_one_line_in_the_words_of_a_job_file(change: dict[str, Any], line: str) -> None:
    assert refusal(document(**change)) == f"jobs.yaml: jobs[0].{line}"


def test_a_long_value_is_cut_in_the_message() -> None:
    assert len(refusal(document(on_error="x" * 10_000))) < 250


def test_every_mistake_gets_its_own_line() -> None:
    lines = refusal(document() | {"enginee": 1, "engine": {"block_size": 0}}).splitlines()
    assert lines == [
        "jobs.yaml: engine.block_size: 0 input should be greater than or equal to 1",
        "jobs.yaml: enginee: unknown key; did you mean 'engine'?",
    ]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            {"name": "../up"},
            "jobs[0].name: '../up' " + NAME_RULE,
        ),
        (
            {"name": "one\n"},
            "jobs[0].name: 'one\\n' " + NAME_RULE,
        ),
        ({"input": 3}, "jobs[0].input: 3 input should be text or a list"),
        ({"on_error": "skip"}, "jobs[0].on_error: 'skip' input should be 'row' or 'stop'"),
        ({"columns": "text"}, "jobs[0].columns: 'text' input should be a list"),
        ({"messages": [{"role": "user", "content": "x"}]}, "jobs[0]: give either prompt or messages"),
        ({"prompt": None}, "jobs[0]: give either prompt or messages"),
        ({"prompt": None, "messages": []}, "jobs[0]: messages is empty"),
        (
            {"column": "_batchrun"},
            "jobs[0]: column must not be _batchrun; that name holds the bookkeeping of each row",
        ),
        (
            {"sampling": {"max_tokens": 0}},
            "jobs[0].sampling.max_tokens: 0 input should be greater than or equal to 1",
        ),
        (
            {"sampling": {"temperature": -1}},
            "jobs[0].sampling.temperature: -1 input should be greater than or equal to 0",
        ),
        (
            {"sampling": {"temperature": float("nan")}},
            "jobs[0].sampling.temperature: nan input should be a finite number",
        ),
        ({"sampling": {"top_p": float("nan")}}, "jobs[0].sampling.top_p: nan input should be less than or equal to 1"),
        ({"sampling": {"seed": 2**63}}, f"jobs[0].sampling.seed: {2**63} input should be less than {2**63}"),
        (
            {"sampling": {"stop": ["a", ""]}},
            "jobs[0].sampling.stop: a stop string is empty; every text would end at once",
        ),
    ],
)
def test_a_wrong_job_value_is_named_with_its_field(change: dict[str, Any], line: str) -> None:
    assert f"jobs.yaml: {line}" in refusal(document(**change)).splitlines()


def test_a_mistake_in_a_job_does_not_claim_that_there_is_no_job() -> None:
    assert refusal(document(on_error="skip")) == "jobs.yaml: jobs[0].on_error: 'skip' input should be 'row' or 'stop'"


def test_a_file_without_jobs_is_refused() -> None:
    assert (
        refusal({"model": "m", "jobs": []}) == "jobs.yaml: jobs: the list is empty; a job file needs at least one job"
    )


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"name": "one"}, "jobs: jobs[0] and jobs[1] have the same name; every job needs its own"),
        ({"output": "out"}, "jobs[1].output: 'out' is the output of jobs[0] too; every job needs its own"),
        ({"output": "out/x"}, "jobs[1].output: 'out/x' lies in the output of jobs[0]; every job needs its own"),
    ],
)
def test_two_jobs_may_not_share_a_name_or_an_output(change: dict[str, Any], line: str) -> None:
    content = two_jobs()
    content["jobs"][1] |= change
    assert refusal(content) == f"jobs.yaml: {line}"


def test_an_output_around_another_one_is_refused() -> None:
    content = two_jobs()
    content["jobs"][0]["output"] = "out2/x"
    assert refusal(content).startswith("jobs.yaml: jobs[0].output: 'out2/x' lies in the output of jobs[1];")


@pytest.mark.parametrize("output", [".", "./", "x/..", "/base"])
def test_the_folder_of_the_job_file_is_no_output(output: str) -> None:
    assert "is the folder of the job file" in refusal(document(output=output))


@pytest.mark.parametrize("other", ["./out", "out/", "x/../out"])
def test_one_output_written_in_two_ways_is_still_one_output(other: str) -> None:
    content = document()
    content["jobs"].append(content["jobs"][0] | {"name": "two", "output": other})
    assert "output" in refusal(content)
