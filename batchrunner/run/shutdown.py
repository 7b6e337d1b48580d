"""Signals ask a run to stop; it saves its state at the next step and leaves with a code that says so."""

import signal
import threading
from types import FrameType
from typing import Any, Self

from batchrunner.errors import EXIT_CTRL_C, EXIT_INTERRUPTED, Interrupted

# Slurm sends USR1 ahead of a limit when asked to, TERM at preemption; NCCL may take USR1 for itself, hence USR2. HUP
# means that the terminal was closed.
_DRAIN = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class Shutdown:
    """While active, the first signal asks for an orderly stop; a second Ctrl-C stops at once."""

    def __init__(self) -> None:
        self._received: signal.Signals | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # nobody else may set handlers
            for number in _DRAIN:
                if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                    continue  # nohup: whoever started us wants the terminal's end ignored
                self._previous[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    @property
    def is_requested(self) -> bool:
        return self._received is not None

    def check(self) -> None:
        """Raises Interrupted if a signal has come."""
        if self._received is not None:
            code = EXIT_CTRL_C if self._received == signal.SIGINT else EXIT_INTERRUPTED
            raise Interrupted(f"stopped by {self._received.name}; run the same command again to go on", code)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._received == signal.SIGINT and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._received = signal.Signals(number)
