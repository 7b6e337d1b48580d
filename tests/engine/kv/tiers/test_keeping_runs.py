"""What one run kept on disk, and the next one finds there."""

from pathlib import Path

import numpy as np
import pytest

from batchrunner.engine.kv.foresight import Unknown
from batchrunner.engine.kv.places import Move, Place
from batchrunner.engine.kv.tiers.disk_file import DiskFile
from batchrunner.engine.kv.tiers.disk_layout import Layout
from batchrunner.engine.kv.tiers.keeping import disk_tier, keep_prefixes
from batchrunner.engine.kv.tiers.tier import Tier
from tests.engine.kv.cached_blocks import Device, key, put
from tests.engine.kv.tiers.disk_blocks import BLOCK_BYTES, NUM_SLOTS, change, content, kept_path, open_file

HOST, DISK = Place.HOST, Place.DISK


def make(moves: list[Move], file: DiskFile, payloads: dict[tuple[Place, int], int]) -> None:
    """Write what is to be kept. payloads: which content() lies in the slots the moves start from."""
    for move in moves:
        assert move.target == DISK
        file.begin(move.target_slot)[:] = content(payloads[move.source, move.source_slot])
        file.commit(move.target_slot, move.key, move.parent_key, move.num_uses)


def test_the_next_run_finds_what_was_kept(tmp_path: Path) -> None:
    file = open_file(tmp_path)
    device, host = Device(), Tier(HOST, 9, Unknown())
    node = device.enter(1, num_uses=4)
    block = put(host, 1, 2, num_uses=3)
    moves = keep_prefixes(device.cache, [host, disk_tier(file, Unknown())], file)
    make(moves, file, {(Place.DEVICE, node.block): 7, (HOST, block.slot): 8})
    file.close()

    file = open_file(tmp_path)
    disk = disk_tier(file, Unknown())
    assert (disk.place, disk.num_slots) == (DISK, NUM_SLOTS)
    for chain, depth, num_uses, number in (((1,), 1, 4, 7), ((1, 2), 2, 3, 8)):
        found = disk.find(key(*chain))
        assert found is not None
        assert (found.parent_key, found.depth, found.num_uses) == (key(*chain[:-1]), depth, num_uses)
        assert np.array_equal(file.payload(found.slot), content(number))
    assert disk.leaving(key(9), 1) is disk.find(key(1, 2)), "its parent is no leaf"
    assert put(disk, 5, num_uses=1).slot not in {move.target_slot for move in moves}
    file.close()


def test_the_next_run_does_not_find_what_was_not_kept(tmp_path: Path) -> None:
    """The file forgets a block as soon as the tier does, also where nothing is written into its slot."""
    file = open_file(tmp_path)
    disk = disk_tier(file, Unknown())
    for number, num_uses in enumerate((1, 3, 4)):
        block = put(disk, number, num_uses=num_uses)
        make([Move(HOST, 0, DISK, block.slot, block.key, block.parent_key, num_uses)], file, {(HOST, 0): number})
    disk.discard(key(1))
    assert keep_prefixes(Device().cache, [disk], file) == []
    file.close()
    file = open_file(tmp_path)
    assert [block.key for block in file.kept] == [key(2)]
    file.close()


def test_the_next_run_learns_of_the_uses_of_this_one(tmp_path: Path) -> None:
    device = Device()
    node = device.enter(1, num_uses=2)
    for num_uses in (2, 6):
        node.num_uses = num_uses
        file = open_file(tmp_path)
        moves = keep_prefixes(device.cache, [disk_tier(file, Unknown())], file)
        make(moves, file, {(Place.DEVICE, node.block): 7})
        file.close()
    assert not moves, "its payload lies there"
    file = open_file(tmp_path)
    assert [(block.key, block.num_uses) for block in file.kept] == [(key(1), 6)]
    assert file.is_intact(file.kept[0].slot, key(1))
    file.close()


def test_kept_blocks_that_were_damaged_since_are_not_used_and_one_warning_says_so(tmp_path: Path) -> None:
    file = open_file(tmp_path)
    device = Device()
    payloads = {(Place.DEVICE, device.enter(i, num_uses=4).block): i for i in range(3)}
    moves = keep_prefixes(device.cache, [disk_tier(file, Unknown())], file)
    make(moves, file, payloads)
    file.close()
    for move in moves[:2]:
        change(kept_path(tmp_path), Layout(NUM_SLOTS, BLOCK_BYTES).payload_start(move.target_slot) + 100)

    file = open_file(tmp_path)
    disk = disk_tier(file, Unknown())
    assert len(disk) == 3
    with pytest.warns(UserWarning, match="kept blocks are damaged"):
        assert disk.find(moves[0].key) is None
    assert disk.find(moves[1].key) is None
    assert disk.find(moves[2].key) is not None
    assert (len(disk), disk.num_broken) == (1, 2)
    file.close()
