"""The plan of one job: lengths, a sample that runs first, and the orders of the policies."""

import random
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from batchrunner.plan.balance import MAX_LOSS
from batchrunner.plan.job_plan import SAMPLE_SHARE, JobPlan, Pace, Room, Rows, plan_job
from batchrunner.plan.lengths import expect_lengths
from batchrunner.plan.prefix_order import order_in_memory

ROOM = Room(max_running=8, num_kv_tokens=100_000)


def plan(
    prompts: Sequence[Sequence[int]],
    policy: str = "prefix",
    known: Mapping[str, Sequence[int]] | None = None,
    priorities: Sequence[int] | None = None,
    limits: Sequence[int] | None = None,
    is_fixed: bool = False,
    room: Room = ROOM,
) -> JobPlan:
    num_rows = len(prompts)
    rows = Rows(
        num_prompt=np.array([len(prompt) for prompt in prompts], dtype=np.int64),
        limits=np.array(limits or [50] * num_rows, dtype=np.int64),
        is_fixed=np.full(num_rows, is_fixed),
        priorities=np.array(priorities or [0] * num_rows, dtype=np.int64),
    )
    return plan_job(order_in_memory(prompts), rows, policy, "g", known or {}, Pace(), room)


def test_with_nothing_known_answers_may_be_as_long_as_allowed() -> None:
    found = expect_lengths(np.array([4, 9]), np.array([7, 30]), np.array([False, True]), "g", {})
    assert (found.expected.tolist(), found.drawn.tolist(), found.is_known) == ([7, 30], [7, 30], False)


def test_lengths_are_those_of_earlier_answers_to_prompts_of_the_like_size() -> None:
    known = {"4:g": [2] * 8, "*:g": [2] * 8 + [40] * 8, "*:other": [99] * 8}
    num_prompt, limits = np.array([5, 64, 5, 5]), np.array([50, 50, 1, 50])
    found = expect_lengths(num_prompt, limits, np.array([False, False, False, True]), "g", known)
    assert found.expected.tolist() == [2, 21, 1, 50]
    assert found.drawn[0] == 2 and found.drawn[1] in (2, 40) and found.drawn[3] == 50
    assert (found.is_known, found.source) == (True, "16 answers of this template")


def test_lengths_that_parameters_fix_need_no_history() -> None:
    found = expect_lengths(np.array([4]), np.array([7]), np.array([True]), "g", {})
    assert (found.is_known, found.source) == (True, "ignore_eos: as long as max_tokens")


def test_too_few_answers_tell_nothing() -> None:
    found = expect_lengths(np.array([4]), np.array([7]), np.array([False]), "g", {"*:g": [1] * 7})
    assert (found.expected.tolist(), found.is_known) == ([7], False)


def test_a_sample_from_all_over_the_order_runs_first_while_lengths_are_not_known() -> None:
    prompts = [[group, row] for group in range(50) for row in range(20)]
    found = plan(prompts)
    sample = found.rows[: int(SAMPLE_SHARE * len(prompts))]
    assert len({int(row) // 100 for row in sample}) == len(sample) == 10
    assert sorted(found.rows.tolist()) == list(range(1000))
    assert found.run.num_lost <= SAMPLE_SHARE * found.order.num_to_compute


def test_no_sample_runs_first_where_lengths_are_known_or_rows_are_few() -> None:
    prompts = [[group, row] for group in range(50) for row in range(20)]
    assert plan(prompts, known={"*:g": [5] * 20}).rows.tolist() == list(range(1000))
    assert plan(prompts, is_fixed=True).rows.tolist() == list(range(1000))
    assert plan(prompts[:100]).rows.tolist() == list(range(100))


@pytest.mark.parametrize("seed", range(5))
def test_balance_and_sample_together_stay_within_the_bound(seed: int) -> None:
    rng = random.Random(seed)
    prompts = [[*[group] * rng.randint(1, 60), row] for group in range(60) for row in range(20)]
    limits = [rng.choice([2, 10, 400]) for _ in prompts]
    found = plan(prompts, limits=limits)
    assert 0 < found.run.num_lost <= MAX_LOSS * found.order.num_to_compute


def test_a_sample_that_would_cost_sharing_stays_small() -> None:
    prompts = [[*[group] * 500, row] for group in range(10) for row in range(100)]
    found = plan(prompts)
    assert found.run.num_lost <= MAX_LOSS * found.order.num_to_compute
    assert sum(place != row for place, row in enumerate(found.rows.tolist())) < 10


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("prefix", [2, 1, 0, 3]), ("fcfs", [0, 1, 2, 3]), ("sjf", [0, 1, 2, 3]), ("priority", [1, 3, 0, 2])],
)
def test_each_policy_has_its_order(policy: str, expected: list[int]) -> None:
    found = plan([[5], [3], [1], [7]], policy, priorities=[0, 2, 0, 1], is_fixed=True)
    assert found.rows.tolist() == expected
    assert found.run.num_lost == 0


def test_rows_that_fit_at_once_are_as_many_as_memory_holds() -> None:
    assert Room(8, 1000).num_running(300.0) == 3
    assert Room(8, 1000).num_running(10.0) == 8
    assert Room(8, 10).num_running(300.0) == 1


def test_a_plan_of_no_rows_is_empty() -> None:
    found = plan([])
    assert (len(found.rows), found.num_to_compute, len(found.num_shared_later)) == (0, 0, 0)
