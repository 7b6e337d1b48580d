"""The figures of a plan: histograms, sums, words, and their way into JSON."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrunner.forecast.duration import Duration, time_text
from batchrunner.preview.figures import TOO_LARGE, TOO_LONG, SharedPrefix
from batchrunner.preview.histogram import Histogram
from batchrunner.preview.wording import SHOWN_CHARS, change_text, printable_end
from tests.preview.plans import FOREIGN, empty_plan, job_figures, plan_by_hand

VALUES = st.lists(st.one_of(st.integers(0, 20), st.integers(0, 5_000), st.integers(0, 2**40)), min_size=1)


def histogram_of(values: list[int], max_bins: int = 20) -> Histogram:
    return Histogram.of(np.array(values, np.int64), max_bins)


@given(VALUES, st.integers(1, 30))
def test_every_value_is_counted_in_its_bin(values: list[int], max_bins: int) -> None:
    histogram = histogram_of(values, max_bins)
    assert len(histogram.edges) == len(histogram.counts) + 1 <= max_bins + 1
    assert sum(histogram.counts) == len(values)
    for count, low, high in zip(histogram.counts, histogram.edges, histogram.edges[1:], strict=False):
        assert low < high
        assert count == sum(low <= value < high for value in values)


@given(VALUES)
def test_edges_are_round(values: list[int]) -> None:
    edges = histogram_of(values).edges
    widths = set(np.diff(edges).tolist())
    if len(widths) == 1:
        (width,) = widths
        assert int(str(width)[0]) in (1, 2, 5) and set(str(width)[1:]) <= {"0"}
        assert edges[0] % width == 0
    else:
        assert all(edge == 0 or (str(edge)[0] in "125" and set(str(edge)[1:]) <= {"0"}) for edge in edges)


@given(VALUES)
def test_no_bin_at_either_end_is_empty(values: list[int]) -> None:
    counts = histogram_of(values).counts
    assert counts[0] and counts[-1]


def test_narrow_data_has_equal_bins() -> None:
    assert histogram_of([118, 121, 121, 125], max_bins=5) == Histogram([118, 120, 122, 124, 126], [1, 2, 0, 1])
    assert histogram_of([7, 7]) == Histogram([7, 8], [2])


def test_data_with_a_long_tail_has_doubling_bins() -> None:
    values = [3, 8, 15, 15, 30, 40, 60, 70, 150, 5_000]
    assert histogram_of(values).edges == [2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000]
    values += [600, 900]
    assert histogram_of(values, max_bins=5) == Histogram([2, 500, 1000, 2000, 5000, 10000], [9, 2, 0, 0, 1])


def test_most_values_alike_and_a_few_below_have_equal_bins() -> None:
    assert set(np.diff(histogram_of([256] * 95 + [3, 7, 100]).edges)) == {20}


def test_without_values_there_is_one_empty_bin() -> None:
    assert histogram_of([]) == Histogram([0, 1], [0])


def test_the_fullest_bin_is_the_first_of_equals() -> None:
    assert Histogram([0, 1, 2, 3], [1, 4, 4]).fullest == 1


def test_rows_that_will_fail_are_counted_with_their_reasons() -> None:
    job = job_figures()
    assert job.num_will_fail == 12
    assert job.why_they_fail == {"null_value": 7, "template_error": 1, TOO_LONG: 3, TOO_LARGE: 1}
    assert replace(job, num_too_long=0, num_too_large=0).why_they_fail == job.errors


def test_rates_and_shares() -> None:
    plan = plan_by_hand()
    assert plan.jobs[0].hit_rate == 0.75
    assert plan.hit_rate == plan.forecast.hit_rate == 1 - 8 / 28
    assert plan.forecast.peak_share == 0.75
    nothing = empty_plan()
    assert (nothing.hit_rate, nothing.jobs[0].hit_rate, nothing.forecast.peak_share) == (0, 0, 0)


def test_json_has_all_that_was_found() -> None:
    plan = plan_by_hand(num_jobs=2)
    found = json.loads(json.dumps(plan.to_dict()))
    assert found["hit_rate"] == found["forecast"]["hit_rate"] == plan.hit_rate
    assert found["forecast"]["duration"] == {"seconds": 8.8, "low_seconds": 6.5, "high_seconds": 13}
    assert found["forecast"]["peak_share"] == 0.75
    assert found["budget"] == plan.budget
    assert [job["name"] for job in found["jobs"]] == ["job-0", "job-1"]
    job = found["jobs"][0]
    assert (job["hit_rate"], job["num_will_fail"], job["errors"]) == (0.75, 12, {"null_value": 7, "template_error": 1})
    assert job["prompts"] == {"edges": [100, 150, 200, 250], "counts": [10, 0, 30]}
    assert job["prefixes"][1]["num_saved_tokens"] == 14_999
    assert found["what_if"][1]["seconds"] is None
    assert found["shards"][1] == {"num_rows": 112, "num_tokens_to_compute": 4_050, "seconds": 4.4}


@given(st.text(max_size=200))
def test_the_end_of_a_prefix_is_one_harmless_line(text: str) -> None:
    shown = printable_end(text)
    assert shown.isprintable()
    assert len(shown) == min(len(text), SHOWN_CHARS + 1)
    assert shown.startswith("…") or len(text) <= SHOWN_CHARS


def test_a_prefix_shows_its_end() -> None:
    shown = SharedPrefix.of(2, 3, 4, "x" * 100 + FOREIGN).text
    assert shown.startswith("…xxx") and shown.endswith("[bold]·[31m↵·Review:")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (4.24, "4.2 s"),
        (9.97, "10 s"),
        (119, "119 s"),
        (120, "2.0 min"),
        (3_000, "50 min"),
        (12_600, "3.5 h"),
        (1_036_800, "12 days"),
    ],
)
def test_times_have_the_unit_that_fits(seconds: float, text: str) -> None:
    assert time_text(seconds) == text


def test_a_duration_says_its_range() -> None:
    assert str(Duration(600, 300, 5_400)) == "10 min (5.0 min to 90 min)"


@pytest.mark.parametrize(
    ("now", "before", "text"),
    [
        (77, 100, "-23%"),
        (104, 100, "+4%"),
        (996, 1_000, "-0.4%"),
        (99.999, 100, "same"),
        (0, 0, "same"),
        (1, 0, "from none"),
    ],
)
def test_changes_are_shares_of_what_was_before(now: float, before: float, text: str) -> None:
    assert change_text(now, before) == text
