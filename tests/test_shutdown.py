"""Signals: the first asks, the second Ctrl-C insists, and the handlers of before come back."""

import os
import signal

import pytest

from batchrunner.errors import Interrupted
from batchrunner.run.shutdown import Shutdown


@pytest.mark.parametrize(("number", "exit_code"), [("SIGINT", 130), ("SIGTERM", 75), ("SIGUSR1", 75), ("SIGUSR2", 75)])
def test_a_signal_is_noted_and_raised_where_asked_for(number: str, exit_code: int) -> None:
    before = signal.getsignal(signal.Signals[number])
    with Shutdown() as shutdown:
        shutdown.check()
        os.kill(os.getpid(), signal.Signals[number])
        with pytest.raises(Interrupted, match=number) as caught:
            shutdown.check()
    assert caught.value.exit_code == exit_code
    assert signal.getsignal(signal.Signals[number]) is before


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
