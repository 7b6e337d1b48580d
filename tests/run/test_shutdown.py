"""Signals: the first asks, the second Ctrl-C insists, and the handlers of before come back."""

import os
import signal

import pytest

from batchrunner.errors import Interrupted
from batchrunner.run.shutdown import Shutdown


@pytest.mark.parametrize(
    ("number", "exit_code"), [("SIGINT", 130), ("SIGTERM", 75), ("SIGHUP", 75), ("SIGUSR1", 75), ("SIGUSR2", 75)]
)
def test_a_signal_is_noted_and_raised_where_asked_for(
    number: str, exit_code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda number: signal.SIG_DFL)  # whatever the tests were started with
    with Shutdown() as shutdown:
        shutdown.check()
        os.kill(os.getpid(), signal.Signals[number])
        with pytest.raises(Interrupted, match=number) as caught:
            shutdown.check()
    assert caught.value.exit_code == exit_code


def test_the_handlers_of_before_come_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)]
    with Shutdown():
        assert signal.getsignal(signal.SIGTERM) != before[1]
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)] == before


def test_nohup_is_respected() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Shutdown() as shutdown:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not shutdown.is_requested
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_second_ctrl_c_stops_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), Shutdown():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)


def test_a_second_other_signal_changes_nothing() -> None:
    with Shutdown() as shutdown:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Interrupted):
            shutdown.check()
