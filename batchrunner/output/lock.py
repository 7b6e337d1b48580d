"""One runner an output. The lock saves work; safety rests on files that are created only if absent."""

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from batchrunner.errors import LockedError


@contextmanager
def output_lock(state_folder: Path, *, wait: bool) -> Iterator[None]:
    """Hold the lock of one output. Raises LockedError, saying who holds it, unless wait."""
    lock = FileLock(state_folder / "lock", mode=0o600)
    try:
        lock.acquire(timeout=-1 if wait else 0)
    except Timeout as error:
        raise LockedError(
            f"{state_folder.parent}: another batchrun works on this output ({lock_holder(state_folder)}); "
            "wait for it, use --wait, or choose another output"
        ) from error
    try:
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
        (state_folder / "lock.json").write_text(json.dumps(holder))
        yield
    finally:
        (state_folder / "lock.json").unlink(missing_ok=True)
        lock.release()


def is_locked(state_folder: Path) -> bool:
    """Whether a runner works on this output now."""
    lock = FileLock(state_folder / "lock", mode=0o600)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    lock.release()
    return False


def lock_holder(state_folder: Path) -> str:
    try:
        holder = json.loads((state_folder / "lock.json").read_text())
        return f"pid {holder['pid']} on {holder['host']} since {holder['since']}"
    except (OSError, ValueError, KeyError):
        return "it has not said who it is"
