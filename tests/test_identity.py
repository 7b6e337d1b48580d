"""What makes two requests the same one."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrunner.identity import ID_BYTES, prompt_bytes, question_digest, question_hasher, request_id
from batchrunner.spec.sampling import SamplingParams

GREEDY = SamplingParams()
SAMPLED = SamplingParams(temperature=1)
TOKEN_IDS = st.lists(st.integers(0, 2**32 - 1), max_size=5)


def test_the_prompt_decides_the_question() -> None:
    digests = [question_digest(token_ids, GREEDY) for token_ids in ([], [0], [1], [1, 0], [256], [0, 1])]
    assert len(set(digests)) == len(digests)
    assert {len(digest) for digest in digests} == {ID_BYTES}


@pytest.mark.parametrize(
    "change",
    [{"max_tokens": 7}, {"temperature": 0.5}, {"stop": "x"}, {"stop_token_ids": (5,)}, {"ignore_eos": True}],
    ids=str,
)
def test_parameters_that_have_an_effect_decide_the_question(change: dict[str, object]) -> None:
    assert question_digest([1], SamplingParams.model_validate(change)) != question_digest([1], GREEDY)


@pytest.mark.parametrize("change", [{"seed": 7}, {"top_k": 5}, {"top_p": 0.5}, {"min_p": 0.1}], ids=str)
def test_what_only_sampling_looks_at_is_no_part_of_a_greedy_question(change: dict[str, float]) -> None:
    assert question_digest([1], SamplingParams.model_validate(change)) == question_digest([1], GREEDY)
    sampled = SamplingParams.model_validate({"temperature": 1, **change})
    assert question_digest([1], sampled) != question_digest([1], SAMPLED)


@given(TOKEN_IDS, st.sampled_from([GREEDY, SAMPLED]))
def test_a_hasher_serves_many_prompts(token_ids: list[int], sampling: SamplingParams) -> None:
    hasher = question_hasher(sampling)
    for ids in ([1, 2], token_ids):
        digest = hasher.copy()
        digest.update(prompt_bytes(ids))
        assert digest.digest() == question_digest(ids, sampling)


@given(st.lists(TOKEN_IDS, max_size=8))
def test_the_order_of_prompt_bytes_is_the_order_of_the_token_ids(prompts: list[list[int]]) -> None:
    assert sorted(map(prompt_bytes, prompts)) == list(map(prompt_bytes, sorted(prompts)))


def test_ids_that_no_vocabulary_has_are_no_error_here() -> None:
    assert len(question_digest([-1, 2**40], GREEDY)) == ID_BYTES


def test_model_question_and_occurrence_decide_the_id() -> None:
    questions = [question_digest([token], GREEDY) for token in range(20)]
    asked = list(itertools.product(["a", "b", ""], questions, range(20)))
    found = {request_id(*args) for args in asked}
    assert len(found) == len(asked)
    assert {len(name) for name in found} == {ID_BYTES}
    assert found.isdisjoint(questions)


def test_an_id_is_the_same_in_every_version() -> None:
    """Results are kept by these: if they change, everything that was computed is computed again."""
    question = question_digest([1, 70_000], SamplingParams(max_tokens=8, temperature=0.5, seed=3, stop=("é",)))
    assert question.hex() == "fe7d8c48f4da4e41d01703bd3033dbb7"
    assert request_id("model", question, 0).hex() == "86b4864c58e999c83754afbb1276aa5b"
    assert request_id("model", question, 2).hex() == "12aee9df826ae0e847a3a83813fa2a9b"
