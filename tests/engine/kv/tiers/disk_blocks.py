"""Blocks with known content for the tests of the disk tier's file."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from batchrunner.engine.kv.chain import ROOT_KEY, block_key
from batchrunner.engine.kv.tiers.disk_file import DiskFile
from batchrunner.engine.kv.tiers.disk_layout import Layout

BLOCK_BYTES = 5000  # over a page, and no multiple of one
NUM_SLOTS = 4


def key(number: int) -> bytes:
    return block_key(ROOT_KEY, [number])


def content(number: int, block_bytes: int = BLOCK_BYTES) -> NDArray[np.uint8]:
    return np.random.default_rng(number).integers(0, 256, block_bytes, dtype=np.uint8)


def open_file(
    folder: Path,
    *,
    num_slots: int = NUM_SLOTS,
    identity: str = "a model",
    block_bytes: int = BLOCK_BYTES,
    keep: bool = True,
) -> DiskFile:
    return DiskFile.open(folder, Layout(num_slots, block_bytes).num_bytes, block_bytes, identity, keep=keep)


def put(file: DiskFile, slot: int, number: int) -> None:
    file.begin(slot)[:] = content(number)
    file.commit(slot, key(number), ROOT_KEY, number)


def holds(file: DiskFile, slot: int, number: int) -> bool:
    """Whether the slot holds this block; if it says so, its payload must be right."""
    if not file.is_intact(slot, key(number)):
        return False
    assert np.array_equal(file.payload(slot), content(number))
    return True


def kept_path(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def change(path: Path, position: int) -> None:
    """Flip one bit of the byte at position."""
    with path.open("r+b") as stream:
        stream.seek(position)
        byte = stream.read(1)[0]
        stream.seek(position)
        stream.write(bytes([byte ^ 16]))
