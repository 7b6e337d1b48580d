"""The page of a plan: what is on it, where its bars stand, and that foreign text stays text."""

from html.parser import HTMLParser
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrunner.forecast.duration import Duration
from batchrunner.preview import shapes
from batchrunner.preview.figures import JobFilePlan
from batchrunner.preview.histogram import Histogram
from batchrunner.preview.page import render_page
from tests.preview.plans import FOREIGN, empty_plan, job_figures, plan_by_hand

WITHOUT_END = {"meta", "td", "tr", "th"}  # HTML closes them itself


class Page(HTMLParser):
    """A page taken apart: text, tags with their attributes; every other tag must be closed in its turn."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.text = ""
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(source)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.text += " "
        self.tags.append((tag, dict(attributes)))
        if tag not in WITHOUT_END:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in WITHOUT_END:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(plan: JobFilePlan, title: str = "jobs.yaml") -> Page:
    return Page(render_page(plan, title))


def test_the_page_says_what_was_found() -> None:
    text = " ".join(page_of(plan_by_hand()).text.split())
    for words in (
        "Plan of jobs.yaml",
        "8.8 s 6.5 s to 13 s",
        "12 will fail",
        "7 rows will fail: null_value",
        "1 row will fail: template_error",
        "3 rows will fail: the prompt leaves no room in the model's context",
        "49,152 of 65,536 tokens",
        "71.4%",
        "8,000 of 28,000 prompt tokens to compute with this memory; 1,000 of them for balance or want of memory",
        "engine.block_size: 8 7,200 -10% 8.4 s -5% 49,152 same",
        "1 112 4,050 4.4 s",
        "tokens of an answer, by history of 512 answers",
        "Speeds: a quick probe of this machine",
    ):
        assert words in text


def test_foreign_text_stays_text() -> None:
    page = page_of(plan_by_hand(), title=FOREIGN)
    assert f"Plan of {FOREIGN}" in page.text
    assert "field_order: <script> [bold]" in page.text
    assert "beginning 0 <script>alert(1)</script>" in page.text
    assert "script" not in {tag for tag, _ in page.tags}


def test_nothing_comes_from_elsewhere() -> None:
    source = render_page(plan_by_hand(), "jobs.yaml")
    for word in ("http", "src=", "url(", "@import", "<link"):
        assert word not in source
    assert "prefers-color-scheme: dark" in source


def test_ten_jobs_have_a_line_and_a_section_each() -> None:
    page = page_of(plan_by_hand(num_jobs=10))
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    places = [f"#{attributes['id']}" for tag, attributes in page.tags if tag == "h2" and "id" in attributes]
    assert links == places == [f"#job{index}" for index in range(1, 11)]


def test_a_job_without_rows_and_a_run_without_time_have_a_page() -> None:
    page = page_of(empty_plan())
    assert "none is known to fail" in page.text
    for heading in ("What if", "Shards", "shared beginning"):
        assert heading not in page.text
    assert "nan" not in page.text


def test_every_shape_is_inside_its_picture() -> None:
    for plan in (plan_by_hand(num_jobs=3), empty_plan()):
        shapes_drawn = [attributes for tag, attributes in page_of(plan).tags if tag == "rect"]
        for attributes in shapes_drawn:
            x, width = float(attributes["x"] or 0), float(attributes["width"] or 0)
            assert 0 <= x <= x + width <= 400.01


@given(st.lists(st.integers(0, 1_000), min_size=1, max_size=20))
def test_bars_are_as_high_as_their_counts(counts: list[int]) -> None:
    histogram = Histogram(list(range(0, 10 * len(counts) + 1, 10)), counts)
    bars = shapes.histogram_bars(histogram, width=400, height=100)
    for bar, num_values in zip(bars, counts, strict=True):
        assert bar.height * max(1, *counts) == pytest.approx(100 * num_values)
        assert bar.y + bar.height == pytest.approx(100)
    assert all(left.x + left.width < right.x for left, right in pairwise(bars))


def test_a_bar_says_its_range() -> None:
    bars = shapes.histogram_bars(Histogram([100, 1_200, 1_201], [3, 1_000]), width=400, height=100)
    assert [bar.hint for bar in bars] == ["100 to 1,199 tokens: 3", "1,200 tokens: 1,000"]


@given(st.integers(1, 20), st.integers(2, 50))
def test_labels_have_room_and_stand_at_their_edges(num_bins: int, bin_width: int) -> None:
    edges = list(range(0, num_bins * bin_width + 1, bin_width))
    labels = shapes.histogram_labels(Histogram(edges, [1] * num_bins), width=400)
    assert labels[0] == shapes.Label(0, "0", "start")
    assert all(right.x - left.x >= 60 for left, right in pairwise(labels))
    for label in labels:
        assert int(label.text.replace(",", "")) == pytest.approx(label.x / 400 * edges[-1])


def test_a_bin_of_one_value_has_its_label_under_its_middle() -> None:
    assert shapes.histogram_labels(Histogram([256, 257], [5]), width=400) == [shapes.Label(200, "256", "middle")]


def test_prompt_tokens_are_divided_by_what_becomes_of_them() -> None:
    bars = shapes.prompt_bars(job_figures(), widest=62_000, width=620, height=14)
    assert [(bar.kind, bar.x, bar.width) for bar in bars] == [
        ("computed", 0, 70),
        ("shared", 70, 210),
        ("duplicate", 280, 30),
    ]


def test_the_pool_is_divided_into_held_and_free() -> None:
    bars = shapes.memory_bars(plan_by_hand().forecast, width=400, height=14)
    assert [(bar.kind, bar.width) for bar in bars] == [("held", 300), ("free", 100)]


def test_the_duration_stands_in_its_range() -> None:
    assert shapes.duration_marks(Duration(5, 4, 10), width=400) == shapes.DurationMarks(160, 200, 400)
    assert shapes.duration_marks(Duration(0, 0, 0), width=400) == shapes.DurationMarks(0, 0, 0)
