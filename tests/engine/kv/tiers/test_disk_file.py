"""The file behind the disk tier: what it says is intact is what was committed, whatever happened in between."""

import errno
import os
import stat
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrunner.engine.kv.chain import ROOT_KEY
from batchrunner.engine.kv.tiers import disk_file
from batchrunner.engine.kv.tiers.disk_file import DiskFile, KeptBlock
from batchrunner.engine.kv.tiers.disk_layout import ENTRY_BYTES, MAX_NUM_USES, Layout
from batchrunner.errors import StorageError
from tests.engine.kv.tiers.disk_blocks import (
    BLOCK_BYTES,
    NUM_SLOTS,
    change,
    content,
    holds,
    kept_path,
    key,
    open_file,
    put,
)


@pytest.mark.parametrize("keep", [False, True])
def test_round_trip(tmp_path: Path, keep: bool) -> None:
    file = open_file(tmp_path, keep=keep)
    assert (file.num_slots, file.block_bytes, file.kept, file.is_kept) == (NUM_SLOTS, BLOCK_BYTES, [], keep)
    for slot in range(NUM_SLOTS):
        put(file, slot, slot)
    put(file, 2, 7)
    assert [holds(file, slot, number) for slot, number in enumerate((0, 1, 7, 3))] == [True] * 4
    assert not file.is_intact(2, key(2))
    file.discard(1)
    assert not file.is_intact(1, key(1))
    payload = file.payload(0)
    assert payload.shape == (BLOCK_BYTES,) and payload.ctypes.data % 64 == 0
    file.close()
    file.close()


def test_kept_for_the_next_run(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "kv"
    file = open_file(folder)
    for slot in (0, 1, 3):
        put(file, slot, slot + 5)
    file.discard(1)
    file.close()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(kept_path(folder).stat().st_mode) == 0o600
    file = open_file(folder)
    assert file.kept == [KeptBlock(0, key(5), ROOT_KEY, 5), KeptBlock(3, key(8), ROOT_KEY, 8)]
    assert holds(file, 0, 5) and holds(file, 3, 8)
    file.close()


def test_models_share_a_folder(tmp_path: Path) -> None:
    files = [open_file(tmp_path, identity=identity) for identity in ("a model", "another")]
    for number, file in enumerate(files):
        put(file, 0, number)
        file.close()
    assert len(list(tmp_path.iterdir())) == 2
    file = open_file(tmp_path, identity="another")
    assert [block.key for block in file.kept] == [key(1)]
    file.close()


def test_arrays_left_at_close(tmp_path: Path) -> None:
    file = open_file(tmp_path)
    put(file, 0, 1)
    payload = file.payload(0)
    file.close()
    file = open_file(tmp_path)  # it is not locked
    assert file.is_kept and np.array_equal(payload, content(1))
    file.close()


@pytest.mark.parametrize("position", [0, 4095, BLOCK_BYTES - 1])
def test_flipped_bit_in_a_payload(tmp_path: Path, position: int) -> None:
    file = open_file(tmp_path)
    for slot in range(3):
        put(file, slot, slot)
    change(kept_path(tmp_path), Layout(NUM_SLOTS, BLOCK_BYTES).payload_start(1) + position)
    assert [holds(file, slot, slot) for slot in range(3)] == [True, False, True]
    file.close()


def test_flipped_bit_anywhere_in_an_entry(tmp_path: Path) -> None:
    file = open_file(tmp_path)
    for slot in range(3):
        put(file, slot, slot)
    file.close()
    start = Layout(NUM_SLOTS, BLOCK_BYTES).entry_start(1)
    for position in range(start, start + ENTRY_BYTES):
        change(kept_path(tmp_path), position)
        file = open_file(tmp_path)
        assert [block.slot for block in file.kept] == [0, 2]
        assert [holds(file, slot, slot) for slot in range(3)] == [True, False, True]
        file.close()
        change(kept_path(tmp_path), position)


def test_entry_of_another_slot(tmp_path: Path) -> None:
    file = open_file(tmp_path)
    put(file, 0, 0)
    file.close()
    layout = Layout(NUM_SLOTS, BLOCK_BYTES)
    data = bytearray(kept_path(tmp_path).read_bytes())
    for start, size in ((layout.payload_start, BLOCK_BYTES), (layout.entry_start, ENTRY_BYTES)):
        data[start(1) : start(1) + size] = data[start(0) : start(0) + size]
    kept_path(tmp_path).write_bytes(data)
    file = open_file(tmp_path)
    assert [block.slot for block in file.kept] == [0]
    assert not file.is_intact(1, key(0))
    file.close()


def test_torn_write(tmp_path: Path) -> None:
    file = open_file(tmp_path)
    put(file, 0, 0)
    put(file, 1, 1)
    file.begin(0)[:] = content(2)
    file.begin(1)  # not a byte was written
    assert not file.is_intact(0, key(0)) and not file.is_intact(1, key(1))
    file.close()
    file = open_file(tmp_path)
    assert file.kept == []
    file.close()


def test_slot_must_be_begun(tmp_path: Path) -> None:
    file = open_file(tmp_path, keep=False)
    with pytest.raises(AssertionError, match="slot 0 was not begun"):
        file.commit(0, key(0), ROOT_KEY, 1)
    file.begin(0)
    file.discard(0)
    with pytest.raises(AssertionError, match="slot 0 was not begun"):
        file.commit(0, key(0), ROOT_KEY, 1)
    file.close()


def test_num_uses_are_set_and_nothing_else_changes(tmp_path: Path) -> None:
    file = open_file(tmp_path)
    for slot in (0, 1, 3):
        put(file, slot, slot)
    file.set_num_uses(1, 70)
    file.set_num_uses(2, 70)  # never written
    file.set_num_uses(3, 2**40)
    file.discard(0)
    file.set_num_uses(0, 70)
    assert [holds(file, slot, slot) for slot in range(NUM_SLOTS)] == [False, True, False, True]
    file.close()
    file = open_file(tmp_path)
    assert file.kept == [KeptBlock(1, key(1), ROOT_KEY, 70), KeptBlock(3, key(3), ROOT_KEY, MAX_NUM_USES)]
    assert holds(file, 1, 1) and holds(file, 3, 3)
    file.close()


def test_bad_sector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))

    file = open_file(tmp_path)
    put(file, 0, 0)
    monkeypatch.setattr(DiskFile, "_populate", fail)
    assert not file.is_intact(0, key(0))
    with pytest.raises(StorageError, match="its file cannot be written: Bad address"):
        file.begin(0)
    monkeypatch.undo()
    assert not file.is_intact(0, key(0))
    file.close()


def test_older_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_file, "_POPULATE_READ", 12345)
    monkeypatch.setattr(disk_file, "_POPULATE_WRITE", 12345)
    file = open_file(tmp_path, keep=False)
    put(file, 0, 0)
    assert holds(file, 0, 0)
    file.close()


SLOTS = st.integers(0, NUM_SLOTS - 1)
STEPS = st.one_of(
    st.tuples(st.sampled_from(["put", "begin", "half", "commit"]), SLOTS, st.integers(0, 5)),
    st.tuples(
        st.sampled_from(["discard", "reopen", "flip payload", "flip entry"]), SLOTS, st.integers(0, ENTRY_BYTES - 1)
    ),
)


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(STEPS, max_size=30))
def test_any_sequence(steps: list[tuple[str, int, int]]) -> None:
    """model: the number of the block in each slot. flips: the bits that were changed in it, by position in the file."""
    layout = Layout(NUM_SLOTS, BLOCK_BYTES)
    model: dict[int, int] = {}
    flips: dict[int, set[int]] = {slot: set() for slot in range(NUM_SLOTS)}
    begun: dict[int, int] = {}
    with TemporaryDirectory() as name:
        folder = Path(name)
        file = open_file(folder)
        for step, slot, number in steps:
            if step in ("put", "begin", "half"):
                model.pop(slot, None)
                flips[slot].clear()
                begun[slot] = number
                size = BLOCK_BYTES // 2 if step == "half" else BLOCK_BYTES
                file.begin(slot)[:size] = content(number)[:size]
            if step == "half":
                del begun[slot]  # as if the writer had died
            if step in ("put", "commit") and slot in begun:
                model[slot] = begun.pop(slot)
                file.commit(slot, key(model[slot]), ROOT_KEY, model[slot])
            elif step == "discard":
                file.discard(slot)
                model.pop(slot, None)
                flips[slot].clear()
                begun.pop(slot, None)
            elif step.startswith("flip") and slot in model:
                position = (layout.payload_start if step == "flip payload" else layout.entry_start)(slot) + number
                change(kept_path(folder), position)
                flips[slot] ^= {position}
            elif step == "reopen":
                file.close()
                begun.clear()
                file = open_file(folder)
                whole = [at for at in model if all(position < layout.entries_start for position in flips[at])]
                assert file.kept == [KeptBlock(at, key(model[at]), ROOT_KEY, model[at]) for at in sorted(whole)]
            for at in range(NUM_SLOTS):
                intact = [number for number in range(6) if holds(file, at, number)]
                assert intact == ([model[at]] if at in model and not flips[at] else [])
        file.close()


@given(num_bytes=st.integers(0, 2**44), block_bytes=st.integers(1, 2**24))
def test_layout(num_bytes: int, block_bytes: int) -> None:
    """As many slots as fit, one after the other."""
    layout = Layout.fitting(num_bytes, block_bytes)
    if layout.num_slots >= 1:
        assert layout.num_bytes <= num_bytes
        assert layout.payload_start(layout.num_slots - 1) + block_bytes <= layout.entries_start
        assert layout.entry_start(layout.num_slots - 1) + ENTRY_BYTES == layout.num_bytes
    assert Layout(max(layout.num_slots, 0) + 1, block_bytes).num_bytes > num_bytes
