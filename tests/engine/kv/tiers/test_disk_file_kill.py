"""kill -9 while the disk tier's file is opened or written."""

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.engine.kv.tiers.disk_blocks import NUM_SLOTS, holds, kept_path, key, open_file, put

# Writes for ever; says so once every slot has been written several times.
WRITER = """
import itertools, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests import ROOT
from tests.engine.kv.tiers.disk_blocks import NUM_SLOTS, open_file, put
file = open_file(Path({folder!r}), keep={keep})
for number in itertools.count():
    put(file, number * 3 % NUM_SLOTS, number % 50)
    if number == 20:
        print("started", flush=True)
"""


def write_and_be_killed(folder: Path, *, keep: bool) -> None:
    script = WRITER.format(root=str(ROOT), folder=str(folder), keep=keep)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"started\n"
        process.kill()


def test_what_is_intact_is_right(tmp_path: Path) -> None:
    for _ in range(3):
        write_and_be_killed(tmp_path, keep=True)
        file = open_file(tmp_path)
        assert len(file.kept) >= NUM_SLOTS - 1  # all but the one it was writing
        assert all(block.key == key(block.num_uses) for block in file.kept)
        assert all(holds(file, block.slot, block.num_uses) for block in file.kept)
        file.close()


class Killed(BaseException):
    pass


def kill_at(num_calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the process die instead of the call after num_calls that change the file."""
    calls = itertools.count()

    def dying(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if next(calls) >= num_calls:
                raise Killed
            return function(*arguments)

        return call

    for name in ("ftruncate", "pwrite", "fsync", "posix_fallocate"):
        monkeypatch.setattr(os, name, dying(getattr(os, name)))


@pytest.mark.filterwarnings("ignore:.*(it is replaced|has shrunk)")
@pytest.mark.parametrize("num_calls", range(8))
@pytest.mark.parametrize("num_slots", [3, NUM_SLOTS, 9])
@pytest.mark.parametrize("is_foreign", [False, True])
def test_while_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_calls: int, num_slots: int, is_foreign: bool
) -> None:
    """The same size, a smaller and a larger one; the file is this model's or another's, which must not be taken."""
    file = open_file(tmp_path, identity="another" if is_foreign else "a model")
    for slot in range(NUM_SLOTS):
        put(file, slot, slot)
    file.close()
    path = kept_path(tmp_path)
    open_file(tmp_path).close()  # makes the name
    (name,) = {*tmp_path.iterdir()} - {path} or {path}
    path.replace(name)
    with monkeypatch.context() as patch:
        kill_at(num_calls, patch)
        with suppress(Killed):
            open_file(tmp_path, num_slots=num_slots).close()
    file = open_file(tmp_path, num_slots=num_slots)
    assert file.is_kept
    assert not (is_foreign and file.kept)
    for block in file.kept:
        assert block.key == key(block.slot)
        holds(file, block.slot, block.slot)
    for slot in range(num_slots):
        put(file, slot, slot + 20)
    assert all(holds(file, slot, slot + 20) for slot in range(num_slots))
    file.close()
    file = open_file(tmp_path, num_slots=num_slots)
    assert len(file.kept) == num_slots
    file.close()


def test_a_temporary_file_leaves_nothing(tmp_path: Path) -> None:
    write_and_be_killed(tmp_path, keep=False)
    assert list(tmp_path.iterdir()) == []


def test_a_temporary_file_has_no_name(tmp_path: Path) -> None:
    file = open_file(tmp_path, keep=False)
    put(file, 0, 1)
    assert list(tmp_path.iterdir()) == []
    file.close()
