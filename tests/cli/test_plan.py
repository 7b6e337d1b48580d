"""`batchrun plan`: what it prints and writes, and what it refuses before the work."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from batchrunner.cli.main import cli
from batchrunner.cli.plan import PROGRESS_SECONDS, plan
from batchrunner.errors import OutputError, UsageError
from batchrunner.preview import planning
from batchrunner.preview.figures import JobFilePlan, SharedPrefix
from batchrunner.preview.histogram import Histogram
from batchrunner.preview.table import describe, histogram_text
from batchrunner.spec.job import JobFile
from tests.jobs import document
from tests.preview.plans import empty_plan, job_figures, plan_by_hand

Planner = Callable[[JobFile, Callable[[str, int], None], int], JobFilePlan]


def lines_of(found: JobFilePlan, width: int = 120) -> list[str]:
    console = Console(width=width, highlight=False)
    with console.capture() as capture:
        for part in describe(found):
            console.print(part)
    return capture.get().splitlines()


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run the verb over a plan made by hand, in place of the planning of a job file."""

    def by_hand(job_file: JobFile, on_rows: Callable[[str, int], None], num_shards: int) -> JobFilePlan:
        return plan_by_hand()

    def run(*args: str, planner: Planner = by_hand) -> Result:
        monkeypatch.setattr(planning, "plan_job_file", planner)
        job_file = tmp_path / "jobs.yaml"
        job_file.write_text(yaml.safe_dump(document()))
        command = [str(job_file), *args]
        return CliRunner().invoke(plan, command, catch_exceptions=False, standalone_mode=False)

    return run


def test_what_counts_most_is_printed_first(invoke: Callable[..., Result]) -> None:
    printed = " ".join(invoke().stdout.split())
    place = 0
    for words in (
        "job-0 240 20 12 31,000 7,000 75.0% 8,000 27,136",
        "7 rows: null_value",
        "1 row: template_error",
        "3 rows: the prompt leaves no room in the model's context",
        "1 row: the whole KV pool does not hold prompt and answer",
        "prompt tokens 100 ▃ █ 249 most: 200 to 249 (75%)",
        "answer tokens 128 █ 128 most: 128 (100%); lengths: history of 512 answers",
        "Review: 240 90 15,000",
        "memory: weights 138 MiB",
        "49,152 of 65,536 tokens (75%), 256 at once",
        "8,000 of 28,000 to compute; 1,000 of them for balance or want of memory; hit rate 71.4%",
        "412 steps; arithmetic alone 7.9 s, memory traffic alone 3.1 s",
        "8.8 s (6.5 s to 13 s); speeds: a quick probe of this machine",
        "engine.block_size: 8 7,200 -10% 8.4 s -5% 49,152 same",
        "1 112 4,050 4.4 s",
    ):
        assert words in printed[place:], words
        place = printed.index(words, place)


def test_five_prefixes_are_printed_and_their_markup_is_not_read() -> None:
    printed = "\n".join(lines_of(plan_by_hand()))
    assert printed.count("& [bold]·[31m↵·Review:") == 5


def test_a_prefix_in_signs_of_two_cells_stays_on_its_line_and_keeps_its_end() -> None:
    job = job_figures()
    prefix = SharedPrefix.of(2, 50, 50, "共享前缀" * 20 + "。")
    lines = lines_of(replace(plan_by_hand(), jobs=[replace(job, prefixes=[prefix])]), width=120)
    (line,) = (line for line in lines if "共享" in line)
    assert line.split()[0].endswith("共享前缀。") and line.split()[1:] == ["2", "50", "50"]


def test_several_jobs_are_added_up() -> None:
    (total,) = (line for line in lines_of(plan_by_hand(num_jobs=3)) if line.startswith("all "))
    assert total.split()[1:] == [
        "720",
        "60",
        "36",
        "93,000",
        "24,000",
        "71.4%",
        "24,000",
        "81,408",
    ]  # to compute: of the run


@pytest.mark.parametrize(("width", "scale"), [(80, 10), (120, 10_000)])
def test_a_large_plan_fits_and_no_number_is_cut(width: int, scale: int) -> None:
    lines = lines_of(plan_by_hand(num_jobs=10, scale=scale), width)
    assert max(map(cell_len, lines)) <= width
    (total,) = (line.split() for line in lines if line.startswith("all "))
    counts = [2_400 * scale, 200 * scale, 120, 310_000 * scale, 80_000 * scale]
    answers = [80_000 * scale, 271_360 * scale]
    assert total == ["all", *map("{:,}".format, counts), "71.4%", *map("{:,}".format, answers)]


def test_a_job_without_rows_is_printed() -> None:
    printed = "\n".join(lines_of(empty_plan()))
    assert "prompt tokens  none" in printed
    for heading in ("what if", "shard", "its end"):
        assert heading not in printed


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=20).filter(any))
def test_a_bin_has_a_block_if_it_has_a_value(counts: list[int]) -> None:
    text = histogram_text(Histogram(list(range(len(counts) + 1)), counts))
    blocks = text.removeprefix("0 ")[: len(counts)]
    assert [block == " " for block in blocks] == [count == 0 for count in counts]
    assert blocks[counts.index(max(counts))] == "█"


def test_json_is_the_plan_and_nothing_else(invoke: Callable[..., Result]) -> None:
    assert json.loads(invoke("--json").stdout) == plan_by_hand().to_dict()


def test_a_page_is_written_beside_what_is_printed(invoke: Callable[..., Result], tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    result = invoke("--page", str(page), "--json")
    assert result.return_value == 0
    assert "hit_rate" in json.loads(result.stdout)
    assert f"Plan of {tmp_path / 'jobs.yaml'}" in page.read_text(encoding="utf-8")


def test_a_page_in_a_folder_that_is_not_there_is_refused_before_the_work(
    invoke: Callable[..., Result], tmp_path: Path
) -> None:
    def fails(*args: object) -> JobFilePlan:
        pytest.fail("the rows were read")

    page = tmp_path / "nowhere" / "plan.html"
    with pytest.raises(OutputError, match=rf"--page {page}: cannot be written: .*nowhere"):
        invoke("--page", str(page), planner=fails)


def test_shards_are_asked_for(invoke: Callable[..., Result]) -> None:
    asked = []

    def noted(job_file: JobFile, on_rows: Callable[[str, int], None], num_shards: int) -> JobFilePlan:
        asked.append(num_shards)
        return plan_by_hand()

    invoke(planner=noted)
    invoke("--shards", "4", planner=noted)
    assert asked == [1, 4]
    with pytest.raises(click.BadParameter, match="0 is not in the range"):
        invoke("--shards", "0", planner=noted)


def test_progress_is_told_on_stderr_now_and_then(
    invoke: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    def reads(job_file: JobFile, on_rows: Callable[[str, int], None], num_shards: int) -> JobFilePlan:
        for count, now in enumerate((1.0, PROGRESS_SECONDS + 1, PROGRESS_SECONDS + 2), start=1):
            monkeypatch.setattr("batchrunner.cli.plan.time.monotonic", lambda now=now: now)
            on_rows("reviews", 1_000 * count)
        return plan_by_hand()

    monkeypatch.setattr("batchrunner.cli.plan.time.monotonic", lambda: 0.0)
    result = invoke("--json", planner=reads)
    assert result.stderr == "reviews: 2,000 rows read\n"
    json.loads(result.stdout)


@pytest.mark.parametrize("name", ["jobs.yaml", "in.jsonl", "page"])
def test_a_page_takes_no_other_files_place(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("precious")
    with pytest.raises(UsageError, match=r"--page .*: the name should end in \.html"):
        CliRunner().invoke(
            cli, ["plan", "jobs.yaml", "--page", str(tmp_path / name)], standalone_mode=False, catch_exceptions=False
        )
    assert (tmp_path / name).read_text() == "precious"
