"""Whether a block of KV is moved, or its tokens are computed again."""

import math

import pytest

from batchrunner.engine.kv.places import Place
from batchrunner.engine.kv.swap_choice import SMOOTHING, AlwaysSwap, CheaperOne, MeasuredCosts, NeverSwap

HOST, DISK = Place.HOST, Place.DISK


def costs(down: float, up: float, tokens_per_second: float | None = 16.0) -> MeasuredCosts:
    """Of a block of 16 tokens, that is computed in a second if the speed is not given."""
    return MeasuredCosts(16, {HOST: down}, {HOST: up}, tokens_per_second)


@pytest.mark.parametrize(
    ("down", "up", "stores", "loads"),
    [
        (0.4, 0.5, True, True),
        (0.5, 0.5, False, True),  # as much as computing it
        (0.9, 0.5, False, True),  # once it is down, only the way up counts
        (0.1, 1.0, False, False),
        (0.1, 2.0, False, False),
    ],
)
def test_a_block_is_moved_if_that_takes_less_time_than_computing_it(
    down: float, up: float, stores: bool, loads: bool
) -> None:
    choice = CheaperOne(costs(down, up))
    assert (choice.stores(HOST), choice.loads(HOST)) == (stores, loads)


def test_the_costs_are_those_of_each_place() -> None:
    measured = MeasuredCosts(16, {HOST: 0.1, DISK: 0.8}, {HOST: 0.1, DISK: 3.0}, 16.0)
    choice = CheaperOne(measured)
    assert [choice.stores(place) for place in (HOST, DISK)] == [True, False]
    assert [choice.loads(place) for place in (HOST, DISK)] == [True, False]
    assert [choice.relative_cost(place) for place in (HOST, DISK)] == [0.1, 3.0]
    measured.tokens_per_second = 2.0  # a block takes eight seconds
    assert [choice.stores(place) for place in (HOST, DISK)] == [True, True]


def test_until_the_speed_is_known_moving_is_taken_to_be_cheaper() -> None:
    measured = costs(5.0, 5.0, None)
    choice = CheaperOne(measured)
    assert choice.stores(HOST) and choice.loads(HOST)
    assert measured.recompute_seconds == math.inf
    assert choice.relative_cost(HOST) == 0.0


@pytest.mark.parametrize(("up", "tokens_per_second", "cost"), [(0.25, 16.0, 0.25), (0.25, 64.0, 1.0), (3.0, 16.0, 3.0)])
def test_loading_is_weighed_against_computing(up: float, tokens_per_second: float, cost: float) -> None:
    measured = costs(9.0, up, tokens_per_second)
    for choice in (CheaperOne(measured), AlwaysSwap(measured)):
        assert choice.relative_cost(HOST) == pytest.approx(cost)
        assert choice.relative_cost(Place.DEVICE) == 0.0  # a copy from block to block


def test_swap_and_recompute_ask_for_no_costs() -> None:
    always, never = AlwaysSwap(costs(5.0, 5.0)), NeverSwap()
    assert always.stores(HOST) and always.loads(HOST)
    assert not never.stores(HOST)
    assert never.loads(DISK), "what an earlier run kept"
    assert never.relative_cost(DISK) == 0.0


def test_the_speed_is_that_of_steps_that_mostly_compute_prompts() -> None:
    measured = MeasuredCosts(16)
    measured.observe_step(num_tokens=4, num_samples=4, seconds=1.0)
    measured.observe_step(num_tokens=7, num_samples=4, seconds=1.0)
    measured.observe_step(num_tokens=100, num_samples=0, seconds=0.0)
    assert measured == MeasuredCosts(16, busy_seconds=2.0), "no speed was learned"
    measured.observe_step(num_tokens=8, num_samples=4, seconds=0.5)
    assert measured.tokens_per_second == 16.0
    assert measured.recompute_seconds == 1.0


def test_what_is_measured_later_counts_a_part() -> None:
    measured = costs(1.0, 1.0, tokens_per_second=100.0)
    measured.observe_step(num_tokens=200, num_samples=0, seconds=1.0)
    assert measured.tokens_per_second == pytest.approx(100 + 100 * SMOOTHING)
    measured.observe_moves(measured.seconds_down, HOST, 2.0)
    measured.observe_moves(measured.seconds_up, DISK, 7.0)
    assert measured.seconds_down == {HOST: pytest.approx(1 + SMOOTHING)}
    assert measured.seconds_up == {HOST: 1.0, DISK: 7.0}
    for _ in range(50):
        measured.observe_moves(measured.seconds_down, HOST, 2.0)
    assert measured.seconds_down[HOST] == pytest.approx(2.0, rel=1e-3)
