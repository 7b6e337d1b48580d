"""Sampling on the GPU against the CPU's sampler, its twin, and numpy's random numbers."""

from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from batchrunner import SamplingParams
from batchrunner.engine.text import sampler
from batchrunner.identity import random_key
from batchrunner.kernels.gpu.philox import uniform, uniform_reference
from batchrunner.kernels.gpu.sampling import TILE, sample, sample_reference

# Weights are float32: a token may differ from the CPU's where u is this near to the end of its share of the CDF.
CDF_TOLERANCE = 1e-6


def arguments(params: list[SamplingParams], keys: list[int], positions: list[int]) -> tuple[torch.Tensor, ...]:
    """What sample takes beside the logits."""
    halves = [[half - (half >> 63 << 64) for half in (key & (1 << 64) - 1, key >> 64)] for key in keys]
    return (
        torch.tensor([each.temperature for each in params], dtype=torch.float64),
        torch.tensor([each.top_k for each in params]),
        torch.tensor([each.top_p for each in params], dtype=torch.float64),
        torch.tensor([each.min_p for each in params], dtype=torch.float64),
        torch.tensor(halves),
        torch.tensor(positions),
    )


def draw(logits: torch.Tensor, **sampling: Any) -> set[int]:
    """The tokens that random numbers all over [0, 1) choose from one row of logits; they are the twin's."""
    uniforms = {key: sampler.uniform(key, 0) for key in (random_key(0, f"draw {index}") for index in range(200))}
    keys = [min(uniforms, key=lambda key: abs(uniforms[key] - wanted)) for wanted in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)]
    rows = logits.expand(len(keys), -1)
    given = arguments([SamplingParams(**sampling)] * len(keys), keys, [0] * len(keys))
    token_ids = sample(rows, *given)
    assert torch.equal(token_ids, sample_reference(rows, *given))
    return set(token_ids.tolist())


@triton.jit
def uniform_kernel(keys, positions, out):
    index = tl.arange(0, 512)
    drawn = uniform(tl.load(keys + 2 * index), tl.load(keys + 2 * index + 1), tl.load(positions + index))
    tl.store(out + index, drawn)


def test_random_numbers_are_those_of_numpy_to_the_bit() -> None:
    keys = [0, 1, 1 << 63, 1 << 64, (1 << 128) - 1] + [random_key(seed, "a") for seed in range(507)]
    positions = torch.arange(512) ** 3
    positions[:6] = torch.tensor([0, 1, 2**32 - 1, 2**32, 2**62, 2**63 - 2])
    given = arguments([SamplingParams()] * 512, keys, positions.tolist())
    drawn = torch.empty(512, dtype=torch.float64)
    uniform_kernel[(1,)](given[4], given[5], drawn)
    assert drawn.tolist() == [
        sampler.uniform(key, position) for key, position in zip(keys, positions.tolist(), strict=True)
    ]
    assert torch.equal(drawn, uniform_reference(given[4], given[5]))


def varied_params(count: int) -> list[SamplingParams]:
    """Every option off and on, in all combinations, with different values."""
    generator = torch.Generator().manual_seed(7)
    found = []
    for index in range(count):
        temperature, top_p, min_p = torch.rand(3, generator=generator).tolist()
        found.append(
            SamplingParams(
                temperature=0.2 + 1.5 * temperature,
                top_k=index % 29 + 1 if index & 1 else 0,
                top_p=0.05 + 0.95 * top_p if index & 2 else 1.0,
                min_p=0.2 * min_p if index & 4 else 0.0,
            )
        )
    return found


@pytest.mark.parametrize(
    ("num_rows", "vocabulary", "spread"),
    [
        (24, 113, 1.0),
        (16, 900, 3.0),
        (4, 2 * TILE + 77, 3.0),
        pytest.param(300, 257, 1.0, marks=pytest.mark.slow),
        pytest.param(200, 3 * TILE, 3.0, marks=pytest.mark.slow),
    ],
)
def test_tokens_are_those_of_the_cpu(num_rows: int, vocabulary: int, spread: float) -> None:
    torch.manual_seed(vocabulary)
    logits = spread * torch.randn(num_rows, vocabulary)
    params = varied_params(num_rows)
    keys = [random_key(index, "request") for index in range(num_rows)]
    positions = torch.randint(0, 10_000, (num_rows,)).tolist()
    token_ids = sample(logits, *arguments(params, keys, positions)).tolist()
    for row, token_id in enumerate(token_ids):
        u = sampler.uniform(keys[row], positions[row])
        expected = sampler.sample_row(logits[row], params[row], u)
        if token_id != expected:
            near = [max(0.0, min(u + shift, 1 - 2**-53)) for shift in (-CDF_TOLERANCE, CDF_TOLERANCE)]
            assert token_id in [sampler.sample_row(logits[row], params[row], other) for other in near], params[row]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_logits_with_many_equal_ones(dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    logits = torch.randn(8, 700).mul(4).round().div(4).to(dtype)
    assert len(logits[0].unique()) < 40
    given = arguments(varied_params(8), [random_key(index, "b") for index in range(8)], list(range(8)))
    assert torch.equal(sample(logits, *given), sample_reference(logits, *given))


def test_temperature_zero_takes_the_first_of_the_largest() -> None:
    logits = torch.full((3, 2 * TILE + 5), -1.0)
    logits[0, 7] = logits[0, 9] = logits[0, TILE + 1] = 4.0
    logits[1, 2 * TILE + 1] = logits[1, 2 * TILE + 4] = -0.5
    greedy = arguments([SamplingParams(top_k=5, top_p=0.5)] * 3, [1, 2, 3], [0, 0, 0])
    assert sample(logits, *greedy).tolist() == [7, 2 * TILE + 1, 0]


@pytest.mark.parametrize(
    ("logits", "sampling", "tokens"),
    [
        ([1.0, 3.0, 2.0, 0.0], {"top_k": 1}, {1}),
        ([1.0, 3.0, 2.0, 0.0], {"top_k": 2}, {1, 2}),
        ([1.0, 3.0, 2.0, 0.0], {"temperature": 9.0, "top_k": 99}, {0, 1, 2, 3}),
        ([1.0, 3.0, 2.0, 0.0], {"top_p": 1e-9}, {1}),
        ([1.0, 3.0, 2.0, 0.0], {"top_p": 0.8}, {1, 2}),
        ([1.0, 3.0, 2.0, 0.0], {"min_p": 0.3}, {1, 2}),
        ([0.0, 1.0, 1.0, 1.0], {"top_k": 2}, {1, 2}),  # of equals, the first token ids stay
        ([0.0, 0.0, 0.0, 0.0], {"top_p": 0.5}, {0, 1}),
        ([0.0, 0.0, 0.0, 0.0], {"top_p": 0.51}, {0, 1, 2}),
        ([0.0, 0.0, 0.0, 0.0], {"top_k": 3, "top_p": 0.5}, {0, 1}),
        ([-0.0, 0.0, -0.0, 0.0], {"top_k": 2}, {0, 1}),
        ([-5.0, -7.0, -5.0, -5.0], {"top_k": 3, "min_p": 0.9}, {0, 2, 3}),
        ([float("-inf"), 2.0, float("-inf"), 2.0], {"top_k": 4}, {1, 3}),
        ([float("-inf"), 2.0, float("-inf"), 2.0], {}, {1, 3}),
        ([0.0, 1.0, 2.0, 1.9], {"temperature": 1e-30}, {2}),
        ([0.0, 1e30, 1e-30, -1e30], {"temperature": 100.0}, {1}),
    ],
)
def test_which_tokens_can_be_drawn(logits: list[float], sampling: dict[str, Any], tokens: set[int]) -> None:
    assert draw(torch.tensor(logits), **{"temperature": 1.0} | sampling) == tokens


def test_logits_that_are_no_numbers_give_a_token_of_the_vocabulary() -> None:
    nan, inf = float("nan"), float("inf")
    logits = torch.tensor([[nan, 1.0, nan], [nan, nan, nan], [-inf, -inf, -inf], [0.0, inf, 1.0]])
    for sampling in ({}, {"top_k": 2}, {"top_p": 0.5}, {"min_p": 0.5}):
        given = arguments([SamplingParams(temperature=1.0, **sampling)] * 4, [1, 2, 3, 4], [0, 1, 2, 3])
        assert sample(logits, *given).tolist() == [1, 0, 0, 1]


def test_neighbours_and_the_row_stride_do_not_matter() -> None:
    torch.manual_seed(5)
    wide = torch.randn(6, 90)
    given = arguments(varied_params(6), [random_key(0, str(index)) for index in range(6)], [4, 0, 3, 9, 1, 5])
    together = sample(wide[:, 10:70], *given)
    alone = [sample(wide[row : row + 1, 10:70].clone(), *(each[row : row + 1] for each in given)) for row in range(6)]
    assert torch.equal(together, torch.cat(alone))


def test_no_rows_and_a_vocabulary_that_is_too_large() -> None:
    nothing = arguments([], [], [])
    assert sample(torch.empty(0, 50), *nothing).shape == (0,)
    with pytest.raises(ValueError, match="up to 1048576 tokens"):
        sample(torch.empty(1, 1).expand(1, (1 << 20) + 1), *nothing)
