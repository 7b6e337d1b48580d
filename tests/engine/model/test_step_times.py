"""What is noted of steps: their work, what they read, and how long they took."""

import pytest
from pydantic import TypeAdapter

from batchrunner.engine.model.prefix_groups import NO_GROUPS, GroupRule, group_by_prefix
from batchrunner.engine.model.step_times import NUM_STEPS, StepTime, StepTimes
from batchrunner.engine.scheduling.step_work import StepWork
from batchrunner.generate.engine import Engine
from batchrunner.kernels.attention_work import Segment
from batchrunner.spec.sampling import SamplingParams
from tests.engine.scheduling.schedulers import schedule_of as schedule


@pytest.mark.parametrize(
    ("spans", "work"),
    [
        ([(6, 5, 6), (9, 8, 9)], StepWork(num_tokens=2, num_samples=2, num_attended=15, num_context=15)),
        (
            [(20, 3, 7), (6, 5, 6)],
            StepWork(num_tokens=5, num_samples=1, num_attended=4 + 5 + 6 + 7 + 6, num_context=13),
        ),
        ([], StepWork(num_tokens=0, num_samples=0, num_attended=0, num_context=0)),
    ],
)
def test_the_work_of_a_step(spans: list[tuple[int, int, int]], work: StepWork) -> None:
    assert StepWork.of(schedule(*spans)) == work


def test_a_group_reads_what_its_members_share_once() -> None:
    segments = [Segment(row, 1, 10, [1, 2, 3 + row]) for row in range(3)]
    assert group_by_prefix(segments, 4, GroupRule(min_members=2, min_tokens=4)).num_read == 8 + 3 * 2
    assert group_by_prefix(segments, 4, NO_GROUPS).num_read == 3 * 10


def test_steps_that_touch_memory_for_the_first_time_are_left_out() -> None:
    times = StepTimes()
    for num_tokens, seconds in ((8, 9.0), (8, 1.0), (3, 2.0), (10, 3.0), (20, 9.0), (20, 4.0)):
        times.observe(schedule((20, 0, num_tokens)), num_tokens, seconds)
    assert [time.seconds for time in times] == [1.0, 2.0, 3.0, 4.0]
    assert next(iter(times)) == StepTime(StepWork(8, 0, 36, 8), num_read=8, seconds=1.0)


def test_only_the_last_steps_are_kept() -> None:
    times, step = StepTimes(), schedule((1, 0, 1))
    for number in range(NUM_STEPS + 3):
        times.observe(step, 1, float(number))
    assert len(times) == NUM_STEPS
    assert [time.seconds for time in times][:: NUM_STEPS - 1] == [3.0, NUM_STEPS + 2.0]


def test_they_can_be_kept_as_json() -> None:
    adapter = TypeAdapter(list[StepTime])
    steps = [StepTime(StepWork(8, 0, 36, 8), num_read=8, seconds=0.1)]
    assert adapter.validate_json(adapter.dump_json(steps)) == steps


def test_an_engine_notes_its_steps(tiny_llama: str) -> None:
    with Engine(tiny_llama, kv_tokens=256, block_size=4) as engine:
        engine.generate([[5, 6, 7]], SamplingParams(max_tokens=4, temperature=0, ignore_eos=True))
        assert [time.work for time in engine.step_times] == [StepWork(1, 1, end, end) for end in (4, 5, 6)]
        assert [time.num_read for time in engine.step_times] == [4, 5, 6]
        assert all(time.seconds > 0 for time in engine.step_times)
