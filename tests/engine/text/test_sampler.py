"""Sampling: the right distribution, and a stream that depends on the request alone."""

from typing import Any

import pytest
import torch

from batchrunner import SamplingParams
from batchrunner.engine.request import Request
from batchrunner.engine.text.sampler import TOP_P_CANDIDATES, sample, sample_row, uniform
from batchrunner.identity import random_key

LOGITS = torch.tensor([1.0, 3.0, 2.0, 0.0, -1.0])


def request(name: str, num_output: int = 0, **sampling: Any) -> Request:
    return Request(name, [5] * (3 + num_output), 3, SamplingParams(**sampling))


def possible(logits: torch.Tensor, **sampling: Any) -> set[int]:
    params = SamplingParams(**sampling)
    return {sample_row(logits, params, (u + 0.5) / 2000) for u in range(2000)}


def test_temperature_zero_takes_the_largest_logit() -> None:
    assert sample(LOGITS[None], [request("a")]) == [1]


@pytest.mark.parametrize(
    ("sampling", "tokens"),
    [
        ({"temperature": 1.0}, {0, 1, 2, 3, 4}),
        ({"temperature": 1.0, "top_k": 2}, {1, 2}),
        ({"temperature": 1.0, "top_k": 1}, {1}),
        ({"temperature": 1.0, "top_k": 99}, {0, 1, 2, 3, 4}),
        ({"temperature": 1.0, "top_p": 0.5}, {1}),
        ({"temperature": 1.0, "top_p": 0.8}, {1, 2}),
        ({"temperature": 1.0, "top_p": 1e-9}, {1}),
        ({"temperature": 1.0, "min_p": 0.3}, {1, 2}),
        ({"temperature": 1.0, "min_p": 0.99}, {1}),
        ({"temperature": 100.0, "min_p": 0.9}, {0, 1, 2, 3, 4}),
        ({"temperature": 1.0, "top_k": 3, "top_p": 0.95, "min_p": 0.2}, {1, 2}),
        ({"temperature": 0.01}, {1}),
    ],
)
def test_which_tokens_can_be_drawn(sampling: dict[str, Any], tokens: set[int]) -> None:
    assert possible(LOGITS, **sampling) == tokens


def test_tokens_are_drawn_with_their_probability() -> None:
    params = SamplingParams(temperature=0.7)
    counts = torch.zeros(5)
    for step in range(20_000):
        counts[sample_row(LOGITS, params, (step + 0.5) / 20_000)] += 1
    expected = torch.softmax(LOGITS / 0.7, dim=-1)
    assert torch.allclose(counts / 20_000, expected, atol=1e-3)


def test_top_p_over_a_flat_vocabulary_looks_beyond_its_first_candidates() -> None:
    logits = torch.zeros(4 * TOP_P_CANDIDATES)
    assert len(possible(logits, temperature=1.0, top_p=0.9)) > TOP_P_CANDIDATES


def test_the_largest_random_number_still_gives_a_token_that_is_allowed() -> None:
    logits = torch.tensor([0.0, 0.0, float("-inf")])
    assert sample_row(logits, SamplingParams(temperature=1.0), 1 - 2**-53) == 1


def test_the_stream_depends_on_seed_request_and_position_alone() -> None:
    keys = [random_key(0, "a"), random_key(1, "a"), random_key(0, "b"), random_key(0, "a", 1)]
    draws = [uniform(key, position) for key in keys for position in range(50)]
    assert len(set(draws)) == len(draws)
    assert draws == [uniform(key, position) for key in keys for position in range(50)]
    assert 0.35 < sum(draws) / len(draws) < 0.65


def test_neighbours_and_their_order_do_not_matter() -> None:
    torch.manual_seed(0)
    logits = torch.randn(6, 300)
    options: list[dict[str, Any]] = [
        {"temperature": 1.0},
        {"temperature": 0.0},
        {"temperature": 0.8, "top_p": 0.9},
        {"temperature": 1.2, "top_k": 7},
        {"temperature": 1.0, "min_p": 0.1},
        {"temperature": 1.0, "seed": 3},
    ]
    requests = [request(f"r{i}", i, **option) for i, option in enumerate(options)]
    together = sample(logits, requests)
    assert together == [sample(logits[i : i + 1], [requests[i]])[0] for i in range(6)]
    backwards = sample(logits.flip(0), requests[::-1])
    assert together == backwards[::-1]


def test_no_request_samples_in_a_step_of_prompt_chunks() -> None:
    assert sample(torch.empty(0, 300), []) == []
