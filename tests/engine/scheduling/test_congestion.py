"""How many requests may run at once, when work goes into computing the same tokens."""

from batchrunner.engine.kv.swap_choice import MeasuredCosts
from batchrunner.engine.scheduling.congestion import WINDOW, Congestion

MUCH, LITTLE = 26, 25  # wasted tokens, of 100 computed


def observe(congestion: Congestion, num_wasted: float, num_running: int = 100, num_steps: int = WINDOW) -> int:
    for _ in range(num_steps):
        congestion.observe(100, num_wasted, num_running)
    return congestion.seats


def test_without_waste_all_may_run() -> None:
    congestion = Congestion(100)
    assert [congestion.seats, observe(congestion, 0), observe(congestion, LITTLE)] == [100, 100, 100]
    assert congestion.num_thrashes == 0


def test_too_much_waste_takes_seats_away_at_the_end_of_a_window() -> None:
    congestion = Congestion(100)
    assert observe(congestion, MUCH, num_steps=WINDOW - 1) == 100
    assert observe(congestion, MUCH, num_steps=1) == 75
    assert observe(congestion, MUCH, num_steps=WINDOW - 1) == 75
    assert observe(congestion, MUCH, num_steps=1) == 56
    assert congestion.num_thrashes == 2


def test_what_counts_is_the_waste_of_the_whole_window() -> None:
    congestion = Congestion(100)
    observe(congestion, 100, num_steps=WINDOW // 4)
    assert observe(congestion, 0, num_steps=WINDOW - WINDOW // 4) == 100
    observe(congestion, 100, num_steps=WINDOW // 4)
    assert observe(congestion, 1, num_steps=WINDOW - WINDOW // 4) == 75


def test_waste_is_weighed_against_what_the_time_was_worth() -> None:
    """A step of 100 decodes that takes as long as 400 tokens of a prompt: 90 tokens computed again are no thrashing."""
    costs = MeasuredCosts(16, tokens_per_second=4000.0)
    congestion = Congestion(100, costs)
    for wasted, seats in ((90, 100), (110, 75)):
        for _ in range(WINDOW):
            costs.busy_seconds += 0.1
            congestion.observe(100, wasted, 100)
        assert congestion.seats == seats


def test_seats_are_taken_from_those_who_run() -> None:
    congestion = Congestion(1000)
    assert observe(congestion, MUCH, num_running=40) == 30
    assert observe(congestion, MUCH, num_running=40) == 22  # more run than have a seat: they were not thrown out


def test_one_may_always_run() -> None:
    congestion = Congestion(4)
    assert [observe(congestion, MUCH, num_running=2) for _ in range(3)] == [1, 1, 1]
    assert observe(congestion, MUCH, num_running=0) == 1


def test_seats_come_back_slowly_while_nothing_is_wasted() -> None:
    congestion = Congestion(20)
    observe(congestion, 90, num_running=6)
    assert [observe(congestion, 0) for _ in range(3)] == [5, 6, 7]
    assert [observe(congestion, LITTLE) for _ in range(20)][-1] == 20
    large = Congestion(1000)
    observe(large, MUCH, num_running=640)
    assert [observe(large, 0) for _ in range(20)][:2] == [510, 541]
    assert (large.seats, large.num_thrashes) == (1000, 1)


def test_no_work_is_no_waste() -> None:
    congestion = Congestion(8)
    for _ in range(WINDOW):
        congestion.observe(0, 0, 0)
    assert (congestion.seats, congestion.num_thrashes) == (8, 0)
