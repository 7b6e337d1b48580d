"""The environment in a job file: filled in everywhere, and told in no error."""

import traceback
from typing import Any

import pytest

from batchrunner.errors import JobFileError
from tests.jobs import build, document, refusal, two_jobs

SECRET = "hunter2-9731"


def test_the_environment_is_filled_in_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BR_DIR", "deep/er")
    monkeypatch.setenv("BR_N", "7")
    found = build(
        document(
            input=["${env:BR_DIR}/a.jsonl", "${env:BR_DIR}${env:BR_N}.jsonl"], sampling={"max_tokens": "${env:BR_N}"}
        )
    )
    assert found.jobs[0].inputs == ("/base/deep/er/a.jsonl", "/base/deep/er7.jsonl")
    assert found.jobs[0].sampling.max_tokens == 7


def test_an_environment_value_is_not_expanded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BR_A", "${env:BR_B}")
    monkeypatch.setenv("BR_B", SECRET)
    assert build(document(prompt="${env:BR_A}")).jobs[0].prompt == "${env:BR_B}"


def test_an_override_reads_the_environment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BR_OUT", "there")
    assert build(document(), {"jobs.0.output": "${env:BR_OUT}"}).jobs[0].output == "/base/there"


def test_what_only_looks_like_a_reference_stays() -> None:
    assert build(document(prompt="$HOME ${HOME} ${env:} ${env:1}")).jobs[0].prompt == "$HOME ${HOME} ${env:} ${env:1}"


def test_a_variable_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BR_NONE", raising=False)
    assert refusal(document(prompt="${env:BR_NONE}")) == (
        "jobs.yaml: ${env:BR_NONE}: the environment variable BR_NONE is not set"
    )


SECRETS_IN_WRONG_PLACES: list[dict[str, Any]] = [
    document() | {"engine": {"device": "${env:BR_SECRET}"}},
    document() | {"engine": {"kv_memory": "${env:BR_SECRET}"}},
    document() | {"engine": {"block_size": "x${env:BR_SECRET}"}},
    document(name="/${env:BR_SECRET}"),
    document(on_error="${env:BR_SECRET}"),
    document(sampling={"temperature": "${env:BR_SECRET}"}),
    document(sampling={"stop": ["", "${env:BR_SECRET}"]}),
    document(messages="${env:BR_SECRET}"),
    document(unknown="${env:BR_SECRET}"),
    {"model": {"key": "${env:BR_SECRET}"}},
    document(output="~${env:BR_SECRET}/x"),
    document(output="${env:BR_SECRET}" * 40),
    document(input=["a", "${env:BR_SECRET}\0"]),
]


@pytest.mark.parametrize("content", SECRETS_IN_WRONG_PLACES)
def test_an_error_shows_the_reference_and_never_the_secret(
    content: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BR_SECRET", SECRET)
    assert SECRET not in refusal(content)


def test_an_error_shows_the_value_as_the_file_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BR_SECRET", SECRET)
    assert "engine.device: '${env:BR_SECRET}' input should be" in refusal(SECRETS_IN_WRONG_PLACES[0])


@pytest.mark.parametrize("field", ["name", "output"])
def test_a_shared_name_or_output_does_not_tell_a_secret(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BR_SECRET", SECRET)
    content = two_jobs()
    for job in content["jobs"]:
        job[field] = "${env:BR_SECRET}"
    assert SECRET not in refusal(content)


@pytest.mark.parametrize("content", SECRETS_IN_WRONG_PLACES)
def test_the_traceback_of_an_error_does_not_tell_a_secret(
    content: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BR_SECRET", SECRET)
    with pytest.raises(JobFileError) as caught:
        build(content)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
