"""What a job sets for all rows, and what it takes from a column: sampling, prompt and messages."""

from typing import Any

import pytest

from batchrunner.spec.sampling import SamplingParams
from batchrunner.spec.types import ColumnRef
from tests.jobs import build, document, refusal


def test_an_empty_section_means_the_defaults() -> None:
    found = build(document(sampling=None) | {"engine": None})
    assert found == build(document())


def test_sampling_tells_constants_from_columns() -> None:
    spec = (
        build(
            document(
                sampling={"max_tokens": {"column": "n"}, "temperature": 0.5, "stop": "END", "seed": {"column": "s"}}
            )
        )
        .jobs[0]
        .sampling
    )
    assert spec.constants() == {"temperature": 0.5, "stop": "END"}
    assert spec.columns() == {"max_tokens": "n", "seed": "s"}


def test_every_sampling_parameter_may_name_a_column() -> None:
    names = list(SamplingParams.model_fields)
    spec = build(document(sampling={name: {"column": f"c_{name}"} for name in names})).jobs[0].sampling
    assert spec.columns() == {name: f"c_{name}" for name in names}
    assert spec.constants() == {}


@pytest.mark.parametrize(
    ("written", "params"),
    [
        ({"max_tokens": 3.0}, SamplingParams(max_tokens=3)),
        ({"stop": "x"}, SamplingParams(stop=("x",))),
        ({"stop": ["x", "y"], "stop_token_ids": [4]}, SamplingParams(stop=("x", "y"), stop_token_ids=(4,))),
        ({"seed": 2**63 - 1, "top_k": 5}, SamplingParams(seed=2**63 - 1, top_k=5)),
        ({"temperature": None}, SamplingParams()),
    ],
)
def test_constant_sampling_becomes_parameters(written: dict[str, Any], params: SamplingParams) -> None:
    assert SamplingParams(**build(document(sampling=written)).jobs[0].sampling.constants()) == params


@pytest.mark.parametrize("written", [1.5, "abc", [1], {"column": 3}])
def test_a_sampling_value_of_the_wrong_kind_is_refused(written: Any) -> None:
    assert "jobs[0].sampling.max_tokens" in refusal(document(sampling={"max_tokens": written}))


def test_only_temperature_zero_is_greedy() -> None:
    assert SamplingParams().is_greedy
    assert not SamplingParams(temperature=0.001).is_greedy


def test_prompt_and_messages_may_name_a_column() -> None:
    assert build(document(prompt={"column": "p"})).jobs[0].prompt == ColumnRef(column="p")
    assert build(document(prompt=None, messages={"column": "m"})).jobs[0].messages == ColumnRef(column="m")
