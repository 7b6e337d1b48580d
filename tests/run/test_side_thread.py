"""Tasks beside the steps: in order, and no error is lost."""

import threading

import pytest

from batchrunner.run.side_thread import SideThread


def test_tasks_run_in_order_and_elsewhere() -> None:
    done: list[int] = []
    threads = set()

    def task(number: int) -> None:
        done.append(number)
        threads.add(threading.current_thread().name)

    with SideThread("beside") as side:
        for number in range(100):
            side.do(lambda number=number: task(number))  # type: ignore[misc]
        side.drain()
        assert side.is_idle
        assert done == list(range(100))
    assert threads == {"beside"}


def test_giving_a_task_does_not_wait_for_it() -> None:
    release = threading.Event()
    with SideThread("beside") as side:
        side.do(lambda: release.wait(10) or None)
        assert not side.is_idle
        release.set()
        side.drain()


def test_the_first_error_ends_the_work_and_is_raised_to_the_caller() -> None:
    done: list[int] = []

    def fail() -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"), SideThread("beside") as side:
        side.do(fail)
        side.do(lambda: done.append(1))
        with pytest.raises(OSError, match="disk full"):
            side.drain()
        with pytest.raises(OSError, match="disk full"):
            side.check()
    assert done == []


def test_an_error_of_the_caller_is_not_hidden_and_the_thread_ends() -> None:
    with pytest.raises(KeyError), SideThread("beside") as side:
        side.do(lambda: 1 / 0 and None)
        raise KeyError
    assert not [thread for thread in threading.enumerate() if thread.name == "beside"]
    assert side.is_idle
