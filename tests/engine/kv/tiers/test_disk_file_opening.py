"""Opening the disk tier's file: whose it is, what is left in it, and whether there is room."""

import errno
import fcntl
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from batchrunner.engine.kv.tiers import disk_layout
from batchrunner.engine.kv.tiers.disk_file import DiskFile
from batchrunner.engine.kv.tiers.disk_layout import MAGIC, PAGE, Layout
from batchrunner.errors import StorageError
from tests.engine.kv.tiers import disk_blocks
from tests.engine.kv.tiers.disk_blocks import BLOCK_BYTES, NUM_SLOTS, change, holds, kept_path, key, open_file, put


def test_no_warning_in_the_usual_case(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for keep in (True, False, True):
            open_file(tmp_path, keep=keep).close()


# A file stands at our name that is not ours: it is left alone.


def a_text(path: Path) -> None:
    path.write_text("mine")


def a_short_text(path: Path) -> None:
    path.write_bytes(MAGIC[:3])


def a_link(path: Path) -> None:
    path.with_name("elsewhere").write_bytes(b"")
    path.symlink_to("elsewhere")


def a_folder(path: Path) -> None:
    path.mkdir()


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("make", [a_text, a_short_text, a_link, a_folder, a_pipe])
def test_foreign_file_is_left_alone(tmp_path: Path, make: Callable[[Path], None]) -> None:
    open_file(tmp_path).close()
    path = kept_path(tmp_path)
    path.unlink()
    make(path)
    before = {entry: (entry.lstat().st_ino, entry.lstat().st_size) for entry in tmp_path.iterdir()}
    with pytest.warns(UserWarning, match=rf"^{path}: it .*; the disk tier uses a temporary file instead") as caught:
        file = open_file(tmp_path)
    assert len(caught) == 1 and caught[0].filename == disk_blocks.__file__
    put(file, 0, 1)
    assert holds(file, 0, 1) and not file.is_kept and file.kept == []
    assert before == {entry: (entry.lstat().st_ino, entry.lstat().st_size) for entry in tmp_path.iterdir()}
    file.close()


def test_second_opener(tmp_path: Path) -> None:
    first = open_file(tmp_path)
    put(first, 0, 1)
    with pytest.warns(UserWarning, match="another run works with it; the disk tier uses a temporary file") as caught:
        second = open_file(tmp_path)
    assert len(caught) == 1
    put(second, 0, 2)
    assert not second.is_kept and holds(first, 0, 1) and holds(second, 0, 2)
    first.close()
    second.close()
    third = open_file(tmp_path)
    assert [block.key for block in third.kept] == [key(1)]
    third.close()


def test_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.warns(UserWarning, match="cannot be locked or read \\(No locks available\\)"):
        file = open_file(tmp_path)
    assert not file.is_kept
    file.close()


# The file is ours, but of no use: it is replaced.


def other_version(path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(disk_layout, "VERSION", 2)
    return "it is of another version"


def damaged_header(path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    change(path, len(MAGIC) + 4)
    return "its header is damaged"


def only_the_magic(path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path.write_bytes(MAGIC)
    return "it is of another version of batchrunner, or damaged"


def other_model(path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    with TemporaryDirectory() as folder:
        open_file(Path(folder), identity="another").close()
        path.write_bytes(kept_path(Path(folder)).read_bytes())
    return "it holds blocks of another model"


def other_block_bytes(path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path.unlink()
    open_file(path.parent, block_bytes=BLOCK_BYTES + 1).close()
    return "it holds blocks of another model or size"


def cut_off(path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    os.truncate(path, path.stat().st_size - 1)
    return "it is cut off"


def unfinished(path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    os.truncate(path, PAGE)
    return "it is cut off or unfinished"


@pytest.mark.parametrize(
    "spoil", [other_version, damaged_header, only_the_magic, other_model, other_block_bytes, cut_off, unfinished]
)
def test_unusable_file_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Path, pytest.MonkeyPatch], str]
) -> None:
    file = open_file(tmp_path)
    put(file, 0, 1)
    file.close()
    path = kept_path(tmp_path)
    reason = spoil(path, monkeypatch)
    with pytest.warns(UserWarning, match=rf"^{path}: {reason}.*; it is replaced, and no block") as caught:
        file = open_file(tmp_path)
    assert len(caught) == 1 and caught[0].filename == disk_blocks.__file__
    assert file.is_kept and file.kept == [] and not file.is_intact(0, key(1))
    put(file, 0, 2)
    file.close()
    file = open_file(tmp_path)
    assert [block.key for block in file.kept] == [key(2)]
    file.close()


def test_empty_file_is_filled(tmp_path: Path) -> None:
    """What a kill right after its creation leaves."""
    open_file(tmp_path).close()
    os.truncate(kept_path(tmp_path), 0)
    file = open_file(tmp_path)
    assert file.is_kept
    file.close()


@pytest.mark.parametrize("num_slots", [5, 20, 300])
def test_growing_keeps_all_blocks(tmp_path: Path, num_slots: int) -> None:
    file = open_file(tmp_path)
    for slot in range(NUM_SLOTS):
        put(file, slot, slot)
    file.close()
    file = open_file(tmp_path, num_slots=num_slots)
    assert file.num_slots == num_slots and [block.slot for block in file.kept] == [0, 1, 2, 3]
    put(file, num_slots - 1, 9)
    assert all(holds(file, slot, slot) for slot in range(NUM_SLOTS)) and holds(file, num_slots - 1, 9)
    file.close()
    file = open_file(tmp_path, num_slots=num_slots)
    assert len(file.kept) == 5
    file.close()


def test_shrinking_keeps_what_fits(tmp_path: Path) -> None:
    file = open_file(tmp_path)
    for slot in range(3):
        put(file, slot, slot)
    file.close()
    open_file(tmp_path, num_slots=3).close()  # nothing is lost
    with pytest.warns(UserWarning, match="size has shrunk; 1 of 3 kept blocks are dropped"):
        file = open_file(tmp_path, num_slots=2)
    assert [block.slot for block in file.kept] == [0, 1] and holds(file, 0, 0) and holds(file, 1, 1)
    assert kept_path(tmp_path).stat().st_size == Layout(2, BLOCK_BYTES).num_bytes
    file.close()


def full_disk(descriptor: int, start: int, num_bytes: int) -> None:
    os.ftruncate(descriptor, num_bytes // 2 * 3)  # some file systems leave what they got
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("keep", [False, True])
def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: bool) -> None:
    monkeypatch.setattr(os, "posix_fallocate", full_disk)
    pattern = rf"^engine.tiers.disk.size: {tmp_path} cannot hold .* \(No space left on device\); give a smaller size"
    with pytest.raises(StorageError, match=pattern):
        open_file(tmp_path, keep=keep)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == 0
    monkeypatch.undo()
    open_file(tmp_path, keep=keep).close()


def test_full_disk_when_growing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = open_file(tmp_path)
    put(file, 0, 1)
    file.close()
    monkeypatch.setattr(os, "posix_fallocate", full_disk)
    with pytest.raises(StorageError, match=r"^engine.tiers.disk.size: "):
        open_file(tmp_path, num_slots=9)
    monkeypatch.undo()
    file = open_file(tmp_path)
    assert len(file.kept) == 1 and holds(file, 0, 1)
    file.close()


def test_size_too_small(tmp_path: Path) -> None:
    needed = Layout(1, BLOCK_BYTES).num_bytes
    with pytest.raises(StorageError, match=rf"^engine.tiers.disk.size: .* give at least {needed:,}"):
        DiskFile.open(tmp_path / "kv", needed - 1, BLOCK_BYTES, "a model", keep=True)
    assert not (tmp_path / "kv").exists()
    file = DiskFile.open(tmp_path / "kv", needed, BLOCK_BYTES, "a model", keep=True)
    assert file.num_slots == 1
    file.close()


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "kv").write_text("")
    pattern = rf"^{tmp_path}/kv: cannot make the file of engine.tiers.disk: File exists"
    with pytest.raises(StorageError, match=pattern):
        open_file(tmp_path / "kv")
