"""Work that goes on beside the engine's steps: text from tokens, the journal, parts.

A step computes outside Python's lock, so that a thread of its own can write and wait for the disk meanwhile.
"""

import queue
import threading
from collections.abc import Callable
from typing import Self

Task = Callable[[], None]


class SideThread:
    """Runs tasks one after the other, in the order they were given. Use it as a context manager.

    The first task that fails is the last one that runs: its error is raised by check(), drain() and at the end, in the
    caller's thread.
    """

    def __init__(self, name: str) -> None:
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._num_given = 0
        self._num_done = 0
        self._error: BaseException | None = None
        self._progress = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=name)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        self._tasks.put(None)
        self._thread.join()
        if kind is None:
            self.check()

    @property
    def is_idle(self) -> bool:
        return self._num_done == self._num_given

    def do(self, task: Task) -> None:
        """Give a task; returns at once."""
        self._num_given += 1
        self._tasks.put(task)

    def check(self) -> None:
        """Raise the error of the task that failed, if one has."""
        if self._error is not None:
            raise self._error

    def drain(self) -> None:
        """Wait until all tasks given so far are done; raise the error if one has failed."""
        with self._progress:
            self._progress.wait_for(lambda: self.is_idle)
        self.check()

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                if self._error is None:
                    task()
            except BaseException as error:  # whatever it is, it belongs to the caller
                self._error = error
            with self._progress:
                self._num_done += 1
                self._progress.notify_all()
