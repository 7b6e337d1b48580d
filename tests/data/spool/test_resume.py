"""A spool is made once: what is whole of it is used, after an interruption or damage too."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from batchrunner.data.spool import writer as spool_writer
from batchrunner.errors import DataError
from batchrunner.spec.job import JobSpec
from tests.data.spools import LetterEncoder, encoded_again, errors_of, ids_of, job_over, spool_of, spooled, texts_of

ROWS: list[dict[str, Any]] = [{"t": letter, "n": number} for number, letter in enumerate("abcdefgh")]
TEXTS = list("abcdefgh")


class StopReading(Exception):  # noqa: N818  what Ctrl-C is in these tests
    pass


@pytest.fixture(autouse=True)
def _small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_writer, "SEGMENT_ROWS", 3)
    monkeypatch.setattr(spool_writer, "BATCH_ROWS", 2)


def stop_after(num_batches: int) -> Callable[[int], None]:
    seen: list[int] = []

    def on_rows(num_rows: int) -> None:
        seen.append(num_rows)
        if len(seen) == num_batches:
            raise StopReading

    return on_rows


def interrupted(job: JobSpec, tmp_path: Path, num_batches: int = 4) -> None:
    """Batches have 2, 1, 2, 1, 2 rows, segments 3, 3 and 2: four batches are two segments."""
    with pytest.raises(StopReading):
        spooled(job, tmp_path, on_rows=stop_after(num_batches))


def test_segments_have_the_rows_in_order(tmp_path: Path) -> None:
    spool = spool_of(tmp_path, ROWS)
    assert texts_of(spool) == TEXTS
    names = sorted(path.name for path in (tmp_path / "spool").iterdir())
    assert names == ["000000.arrow", "000001.arrow", "000002.arrow", "spool.json"]
    segments = json.loads((tmp_path / "spool" / "spool.json").read_text())["segments"]
    assert [segment["num_rows"] for segment in segments] == [3, 3, 2]


def test_a_whole_spool_is_used_without_reading_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_over(tmp_path, ROWS, columns=["n", "t"])
    first = spooled(job, tmp_path)
    monkeypatch.delattr(spool_writer, "read_rows")
    counts: list[int] = []
    again = spooled(job, tmp_path, on_rows=counts.append)
    assert counts == [8]
    assert texts_of(again) == TEXTS
    assert ids_of(again) == ids_of(first)
    assert again.columns == first.columns
    assert again.default == first.default


def test_the_columns_of_a_used_spool_are_the_same(tmp_path: Path) -> None:
    rows = [{"t": "a", "x": {"y": [1]}, "mixed": 1}, {"t": "b", "x": None, "mixed": "text"}]
    first, again = spool_of(tmp_path, rows), spooled(job_over(tmp_path, None), tmp_path)
    assert again.columns == first.columns
    assert again.columns.json_names == {"mixed"}
    assert again.columns.schema.field("x").type == pa.struct([("y", pa.list_(pa.int64()))])


def test_whole_segments_are_kept_through_an_interruption(tmp_path: Path) -> None:
    job = job_over(tmp_path, ROWS)
    interrupted(job, tmp_path)
    counts: list[int] = []
    encoder = LetterEncoder()
    spool = spooled(job, tmp_path, encoder, counts.append)
    assert texts_of(spool) == TEXTS
    assert encoder.encoded == ["g", "h"]
    assert sum(counts) == 8
    assert encoded_again(job, tmp_path, TEXTS) == []


def test_half_a_segment_is_made_again(tmp_path: Path) -> None:
    job = job_over(tmp_path, ROWS)
    interrupted(job, tmp_path, num_batches=3)
    assert not (tmp_path / "spool" / "segment.tmp").exists()
    assert encoded_again(job, tmp_path, TEXTS) == TEXTS[3:]


def test_types_are_found_over_all_rows_also_those_that_were_kept(tmp_path: Path) -> None:
    rows = [{**row, "x": number if number < 3 else str(number)} for number, row in enumerate(ROWS)]
    job = job_over(tmp_path, rows)
    interrupted(job, tmp_path)
    assert spooled(job, tmp_path).columns.json_names == {"x"}


def test_rows_that_could_not_be_asked_are_kept_too(tmp_path: Path) -> None:
    job = job_over(tmp_path, [{"t": None}, *ROWS])
    interrupted(job, tmp_path)
    assert encoded_again(job, tmp_path, [None, *TEXTS]) == ["f", "g", "h"]
    assert errors_of(spooled(job, tmp_path))[:2] == ["null_value", None]


def test_with_stop_the_rows_before_the_broken_one_are_kept(tmp_path: Path) -> None:
    job = job_over(tmp_path, [*ROWS, {"t": None}], on_error="stop")
    with pytest.raises(DataError, match="line 9: null in t"):
        spooled(job, tmp_path)
    assert (tmp_path / "spool" / "000000.arrow").exists()
    with pytest.raises(DataError, match="line 9: null in t"):
        spooled(job, tmp_path)


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("harm", [damage, Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-1])])
@pytest.mark.parametrize("number", range(3))
def test_from_a_bad_segment_on_all_is_made_anew(tmp_path: Path, harm: Callable[[Path], Any], number: int) -> None:
    spool_of(tmp_path, ROWS)
    harm(tmp_path / "spool" / f"{number:06}.arrow")
    job = job_over(tmp_path, None)
    assert encoded_again(job, tmp_path, TEXTS) == TEXTS[3 * number :]
    assert encoded_again(job, tmp_path, TEXTS) == []


@pytest.mark.parametrize("content", ["", "{", "[]", '{"rows": 1}', '{"rows": "x", "segments": [{}], "columns": null}'])
def test_a_torn_list_of_segments_is_no_list(tmp_path: Path, content: str) -> None:
    spool_of(tmp_path, ROWS)
    (tmp_path / "spool" / "spool.json").write_text(content)
    assert encoded_again(job_over(tmp_path, None), tmp_path, TEXTS) == TEXTS


def test_a_spool_without_rows_is_used_too(tmp_path: Path) -> None:
    spool_of(tmp_path, [])
    counts: list[int] = []
    assert len(spooled(job_over(tmp_path, None), tmp_path, on_rows=counts.append)) == 0
    assert counts == [0]


def test_the_stamps_of_a_used_spool_are_those_of_the_files(tmp_path: Path) -> None:
    spool_of(tmp_path, ROWS)
    columns = spooled(job_over(tmp_path, None), tmp_path).columns
    columns.check_unchanged()
    with pytest.raises(DataError, match="has changed"):
        replace(columns, stamps=(replace(columns.stamps[0], num_bytes=1),)).check_unchanged()
