"""The keys of a job file: an unknown one is refused with the nearest known one, a missing one is named."""

from typing import Any

import pytest

from tests.jobs import document, refusal


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"enginee": {}}, "enginee: unknown key; did you mean 'engine'?"),
        ({"engine": {"polcy": "prefix"}}, "engine.polcy: unknown key; did you mean 'policy'?"),
        ({"zzz": 1}, "zzz: unknown key; known keys: model, engine, jobs"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(change: dict[str, Any], line: str) -> None:
    assert refusal(document() | change) == f"jobs.yaml: {line}"


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"outptu": "x"}, "jobs[0].outptu: unknown key; did you mean 'output'?"),
        ({"sampling": {"temprature": 1}}, "jobs[0].sampling.temprature: unknown key; did you mean 'temperature'?"),
        (
            {"prompt": None, "messages": [{"role": "user", "content": "x", "contnt": "y"}]},
            "jobs[0].messages[0].contnt: unknown key; did you mean 'content'?",
        ),
    ],
)
def test_an_unknown_key_below_a_job_is_named_with_its_path(change: dict[str, Any], line: str) -> None:
    assert f"jobs.yaml: {line}" in refusal(document(**change)).splitlines()


def test_an_unknown_key_of_a_column_reference_gets_the_right_suggestion() -> None:
    text = refusal(document(sampling={"max_tokens": {"colum": "n"}}))
    assert "jobs.yaml: jobs[0].sampling.max_tokens.colum: unknown key; did you mean 'column'?" in text.splitlines()


@pytest.mark.parametrize("key", ["name", "input", "output"])
def test_a_missing_key_of_a_job_is_named(key: str) -> None:
    content = document()
    del content["jobs"][0][key]
    assert refusal(content).splitlines()[0] == f"jobs.yaml: jobs[0].{key}: this key is required"


@pytest.mark.parametrize("key", ["model", "jobs"])
def test_a_missing_key_of_the_file_is_named(key: str) -> None:
    content = document()
    del content[key]
    assert refusal(content) == f"jobs.yaml: {key}: this key is required"


@pytest.mark.parametrize("key", ["response", "max_tokens", "x"])
def test_only_a_key_that_is_really_near_is_suggested(key: str) -> None:
    text = refusal(document(**{key: 1}))
    assert text.startswith(f"jobs.yaml: jobs[0].{key}: unknown key; known keys: name, input, output, prompt, messages")


@pytest.mark.parametrize("content", [None, "text", 3, ["a"]])
def test_what_is_no_mapping_is_no_job_file(content: Any) -> None:
    assert refusal(content) == "jobs.yaml: a job file is a mapping with the keys model, engine and jobs"
