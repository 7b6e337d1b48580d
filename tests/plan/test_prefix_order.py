"""Prompts in the order of their prefix tree: in memory, and by way of the disk."""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrunner.errors import DataError, StorageError
from batchrunner.plan import external_sort
from batchrunner.plan.external_sort import ExternalSorter
from batchrunner.plan.prefix_order import PrefixOrder, order_by_prefix, order_in_memory
from batchrunner.plan.prompt_pieces import PIECE_TOKENS

SCHEMA = pa.schema([("row", pa.int64()), ("prompt", pa.large_binary())])
Prompt = tuple[int, ...]

# Beginnings about as long as a piece, so that prompts part before, at and after its end, or never.
beginnings = st.sampled_from([(), (1,) * (PIECE_TOKENS - 1), (1,) * PIECE_TOKENS, (0,) * (2 * PIECE_TOKENS + 1)])
endings = st.lists(st.sampled_from([0, 1, 255, 256, 2**32 - 1]), max_size=3).map(tuple)
prompt_lists = st.lists(st.tuples(beginnings, endings).map(lambda parts: parts[0] + parts[1]), max_size=24)


def batches(prompts: Sequence[Prompt], rows: Sequence[int], size: int = 5) -> Iterator[pa.RecordBatch]:
    as_bytes = [np.array(prompt, dtype=">u4").tobytes() for prompt in prompts]
    for begin in range(0, len(rows), size):
        columns = [rows[begin : begin + size], as_bytes[begin : begin + size]]
        yield pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def random_batches(num_rows: int, size: int = 10_000) -> Iterator[pa.RecordBatch]:
    """Prompts of 64 random tokens."""
    rng = np.random.default_rng(0)
    for begin in range(0, num_rows, size):
        prompts = pa.array([row.tobytes() for row in rng.integers(0, 2**32, (size, 64), np.uint32)], pa.large_binary())
        yield pa.record_batch([pa.array(range(begin, begin + size), pa.int64()), prompts], schema=SCHEMA)


def order_on_disk(prompts: Sequence[Prompt], rows: Sequence[int] | None = None) -> PrefixOrder:
    with TemporaryDirectory() as name:
        folder = Path(name)
        order = order_by_prefix(batches(prompts, range(len(prompts)) if rows is None else rows), folder)
        assert list(folder.iterdir()) == []
    return order


def assert_equal(order: PrefixOrder, expected: PrefixOrder) -> None:
    for name in ("rows", "num_tokens", "num_shared"):
        found = getattr(order, name)
        assert found.dtype == np.int64
        assert found.tolist() == getattr(expected, name).tolist(), name


def nodes(prompts: Sequence[Prompt]) -> set[Prompt]:
    """Of the prefix tree, each named by its prefix; without the root."""
    return {prompt[:depth] for prompt in prompts for depth in range(1, len(prompt) + 1)}


def assert_describes(order: PrefixOrder, prompts: Sequence[Prompt]) -> None:
    rows = order.rows.tolist()
    assert rows == sorted(range(len(prompts)), key=lambda row: (prompts[row], row))
    assert order.num_tokens.tolist() == [len(prompts[row]) for row in rows]
    known: set[Prompt] = set()
    for row, num_shared in zip(rows, order.num_shared.tolist(), strict=True):
        assert num_shared == len(nodes([prompts[row]]) & known)
        known |= nodes([prompts[row]])
    assert order.num_tree_tokens == len(known)


@given(prompt_lists)
def test_in_memory_it_is_the_order_of_the_tree(prompts: list[Prompt]) -> None:
    assert_describes(order_in_memory(prompts), prompts)


@given(prompt_lists)
@settings(max_examples=30, deadline=None)
def test_on_disk_it_is_the_same(prompts: list[Prompt]) -> None:
    order = order_on_disk(prompts)
    assert_describes(order, prompts)
    assert_equal(order, order_in_memory(prompts))


@given(prompt_lists, st.data())
def test_without_some_rows_it_is_the_order_of_the_others(prompts: list[Prompt], data: st.DataObject) -> None:
    order = order_in_memory(prompts)
    mask = data.draw(st.lists(st.booleans(), min_size=len(prompts), max_size=len(prompts)))
    kept = order.keep(np.array(mask, dtype=np.bool_))
    numbers = np.array(sorted(order.rows[mask]), dtype=np.int64)
    expected = order_in_memory([prompts[row] for row in numbers])
    assert_equal(kept, PrefixOrder(numbers[expected.rows], expected.num_tokens, expected.num_shared))


def test_the_last_token_of_every_prompt_is_computed() -> None:
    order = order_in_memory([(1, 2, 3), (1, 2, 3), (1, 2), (), ()])
    assert order.num_tree_tokens == 3
    assert order.num_to_compute == 2 + 1 + 1  # (1, 2); the 3 of both


def test_rows_may_come_in_any_order_and_with_gaps() -> None:
    order = order_on_disk([(7,), (5,), (5,), (6, 1)], rows=[3, 90, 11, 0])
    assert order.rows.tolist() == [11, 90, 0, 3]
    assert order.num_tokens.tolist() == [1, 1, 2, 1]
    assert order.num_shared.tolist() == [0, 1, 0, 0]


def test_there_may_be_no_rows() -> None:
    for order in (order_on_disk([]), order_in_memory([])):
        assert (len(order), order.num_tree_tokens, order.num_to_compute) == (0, 0, 0)


def test_neighbours_that_come_in_different_batches_of_the_sort_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_sort, "ROWS_PER_BATCH", 1)
    prompts = [(1,) * PIECE_TOKENS + (row // 2, 7) for row in range(5000)]  # more than DuckDB's vectors of 2,048
    order = order_on_disk(prompts[::-1])
    assert order.num_shared.tolist() == [0] + [PIECE_TOKENS + 2 * (row % 2) for row in range(1, 5000)]


def test_prompts_beyond_the_memory_are_sorted_in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = ExternalSorter.sort
    names: set[str] = set()

    def watched(sorter: ExternalSorter, unsorted: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        for batch in usual(sorter, unsorted):
            names.update(path.name for path in (tmp_path / "prefix-order").iterdir())
            yield batch

    monkeypatch.setattr(ExternalSorter, "sort", watched)
    order = order_by_prefix(random_batches(160_000), tmp_path, memory_bytes=60_000_000)
    assert sorted(order.rows.tolist()) == list(range(160_000))
    assert order.num_shared.max() <= 4
    assert any(name.startswith("duckdb_temp") for name in names), names
    assert list(tmp_path.iterdir()) == []


# --- what goes wrong ------------------------------------------------------------------------------------------------


def test_an_error_of_the_reader_comes_through_and_nothing_is_left(tmp_path: Path) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from batches([(1,), (2,)], [0, 1])
        raise DataError("row 3 is broken")

    with pytest.raises(DataError, match="row 3 is broken"):
        order_by_prefix(broken(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_run_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "prefix-order").mkdir()
    (tmp_path / "prefix-order" / "pieces.arrow").write_bytes(b"torn")
    assert order_by_prefix(batches([(1,)], [0]), tmp_path).rows.tolist() == [0]
    assert list(tmp_path.iterdir()) == []


@contextmanager
def files_of_at_most(num_bytes: int) -> Iterator[None]:
    """Writing more fails, as it does on a full disk."""
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)


ADVICE = r"prefix-order: cannot .* There were [\d,]+ bytes in it; .* 400 bytes a row are needed. Free some space"


def test_a_full_disk_while_pieces_are_written_says_what_to_do(tmp_path: Path) -> None:
    with files_of_at_most(100_000), pytest.raises(StorageError, match=ADVICE):
        order_by_prefix(random_batches(10_000), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_while_sorting_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = ExternalSorter.sort

    def short_of_disk(sorter: ExternalSorter, unsorted: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        with files_of_at_most(1_000_000):
            yield from usual(sorter, unsorted)

    monkeypatch.setattr(ExternalSorter, "sort", short_of_disk)
    with pytest.raises(StorageError, match=ADVICE):
        order_by_prefix(random_batches(160_000), tmp_path, memory_bytes=60_000_000)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_duckdb_finds_too_small_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = external_sort._settings
    monkeypatch.setattr(external_sort, "_settings", lambda *given: usual(*given) | {"max_temp_directory_size": "1MB"})
    with pytest.raises(StorageError, match=ADVICE):
        order_by_prefix(random_batches(160_000), tmp_path, memory_bytes=60_000_000)
    assert list(tmp_path.iterdir()) == []


def test_too_little_memory_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"memory_bytes: 5,000,000 is too little .* at least 100,000,000"):
        order_by_prefix(random_batches(50_000), tmp_path, memory_bytes=5_000_000)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_to_the_home_folder(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    script = """
import pathlib, pyarrow as pa
from batchrunner.plan.prefix_order import order_by_prefix
batch = pa.record_batch({"row": pa.array([0, 1]), "prompt": pa.array([b"abcd", b"abcd"], pa.large_binary())})
print(order_by_prefix([batch], pathlib.Path()).num_shared.tolist())
"""
    environment = os.environ | {"HOME": str(tmp_path / "home")}
    command = [sys.executable, "-c", script]
    found = subprocess.run(command, cwd=tmp_path / "work", env=environment, capture_output=True, text=True, check=True)
    assert found.stdout == "[0, 1]\n"
    assert list((tmp_path / "home").iterdir()) == list((tmp_path / "work").iterdir()) == []


def test_no_progress_is_drawn_where_results_are_printed(tmp_path: Path) -> None:
    """DuckDB draws a bar on standard output once a sort takes two seconds."""
    with ExternalSorter(tmp_path, 100_000_000) as sorter:
        query = "SELECT current_setting('enable_progress_bar'), current_setting('lock_configuration')"
        assert sorter._connection.execute(query).fetchall() == [(False, True)]
