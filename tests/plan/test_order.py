"""Which rows of a job are run, and the most urgent first."""

from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from batchrunner.identity import ID_BYTES
from batchrunner.plan.order import by_priority, wanted_rows
from tests.data.spools import spool_of


def ids(*numbers: int | None) -> pa.Array:
    return pa.array([None if n is None else n.to_bytes(ID_BYTES, "big") for n in numbers], pa.binary(ID_BYTES))


def test_each_distinct_request_is_run_once_and_errors_never() -> None:
    assert np.flatnonzero(wanted_rows(ids(None, 7, 7, 8, None, 8, 7), ids())).tolist() == [1, 3]


def test_what_is_done_is_not_run_again() -> None:
    request_ids = ids(1, 2, 3, 1, None)
    assert np.flatnonzero(wanted_rows(request_ids, ids(2))).tolist() == [0, 2]
    assert np.flatnonzero(wanted_rows(request_ids, ids(1, 3, 99))).tolist() == [1]
    assert not wanted_rows(request_ids, ids(3, 2, 1)).any()


@given(st.lists(st.one_of(st.none(), st.integers(0, 5)), max_size=30), st.sets(st.integers(0, 5)))
def test_the_first_row_speaks_for_its_equals(numbers: list[int | None], done: set[int]) -> None:
    expected = [
        number is not None and number not in done and number not in numbers[:row] for row, number in enumerate(numbers)
    ]
    assert wanted_rows(ids(*numbers), ids(*done)).tolist() == expected


def test_the_most_urgent_rows_come_first_of_equals_the_first_in_the_input() -> None:
    rows, priorities = np.array([4, 0, 2, 9]), np.array([0, 0, 5, 7])
    assert rows[by_priority(rows, priorities)].tolist() == [9, 2, 0, 4]


def test_the_rows_of_a_whole_job(tmp_path: Path) -> None:
    spool = spool_of(tmp_path, [{"t": text} for text in ["bb", "a", None, "b", "a", "ab"]])
    assert np.flatnonzero(wanted_rows(spool.request_ids, ids())).tolist() == [0, 1, 3, 5]
