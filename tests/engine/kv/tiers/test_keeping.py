"""What of a run is kept on disk for the next one."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrunner.engine.kv.chain import ROOT_KEY
from batchrunner.engine.kv.foresight import Unknown
from batchrunner.engine.kv.places import Place
from batchrunner.engine.kv.tiers.disk_file import DiskFile
from batchrunner.engine.kv.tiers.keeping import keep_prefixes
from batchrunner.engine.kv.tiers.tier import Tier
from tests.engine.kv.cached_blocks import Device, kept, key, put
from tests.engine.kv.tiers.disk_blocks import open_file

HOST, DISK = Place.HOST, Place.DISK


def keys_of(tier: Tier) -> set[bytes]:
    return {block.key for block in tier.blocks()}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DiskFile]:
    """One in which nothing is written: for tests of the tier alone."""
    file = open_file(tmp_path_factory.mktemp("kv"), num_slots=16, keep=False)
    yield file
    file.close()


def test_the_most_used_are_kept_parents_first_and_at_most_as_many_as_there_are_slots(file: DiskFile) -> None:
    device, disk = Device(), Tier(DISK, 3, Unknown())
    device.enter(1, num_uses=5)
    device.enter(2, num_uses=9)
    device.enter(2, 3, num_uses=7)
    device.enter(2, 3, 4, num_uses=5)  # of equals the one nearer to the root is kept
    moves = keep_prefixes(device.cache, [disk], file)
    assert [(move.source, move.target, move.key, move.parent_key, move.num_uses) for move in moves] == [
        (Place.DEVICE, DISK, key(2), ROOT_KEY, 9),
        (Place.DEVICE, DISK, key(2, 3), key(2), 7),
        (Place.DEVICE, DISK, key(1), ROOT_KEY, 5),
    ]
    assert keys_of(disk) == {move.key for move in moves}
    for move in moves:
        block, node = disk.find(move.key), device.cache.find(move.key)
        assert block is not None and node is not None
        assert (move.source_slot, move.target_slot, move.num_uses) == (node.block, block.slot, block.num_uses)
    disk.check_integrity()


def test_a_block_that_one_request_used_or_that_was_never_computed_is_not_kept(file: DiskFile) -> None:
    device, disk = Device(), Tier(DISK, 9, Unknown())
    device.enter(1, num_uses=1)
    device.enter(2, num_uses=5).computed = False
    put(disk, 3, num_uses=1)
    assert keep_prefixes(device.cache, [disk], file) == []
    assert keys_of(disk) == set()


def test_blocks_come_from_host_memory_too(file: DiskFile) -> None:
    device, host, disk = Device(), Tier(HOST, 9, Unknown()), Tier(DISK, 9, Unknown())
    device.enter(1, num_uses=4)
    put(host, 1, num_uses=3)
    below = put(host, 1, 2, num_uses=3)
    device.enter(2, num_uses=2)
    put(host, 2, num_uses=2)
    lying = put(disk, 3, num_uses=2)
    moves = keep_prefixes(device.cache, [host, disk], file)
    assert [(move.source, move.key) for move in moves] == [
        (Place.DEVICE, key(1)),
        (HOST, key(1, 2)),
        (Place.DEVICE, key(2)),  # of two copies the nearer
    ]
    assert moves[1].source_slot == below.slot
    assert disk.find(key(3)) is lying
    assert keep_prefixes(device.cache, [host, disk], file) == [], "they lie there now"


@pytest.mark.parametrize(("is_asked_for", "is_kept"), [(True, True), (False, False)])
def test_what_an_earlier_run_kept_fades_if_nobody_asks_for_it(
    file: DiskFile, is_asked_for: bool, is_kept: bool
) -> None:
    device, disk = Device(), Tier(DISK, 1, Unknown(), [kept(0, 1, num_uses=5)])
    device.enter(2, num_uses=4)
    if is_asked_for:
        disk.find(key(1))
    moves = keep_prefixes(device.cache, [disk], file)
    assert keys_of(disk) == {key(1) if is_kept else key(2)}
    assert len(moves) == (not is_kept)


def test_what_an_earlier_run_kept_stays_unread_while_there_is_room(file: DiskFile) -> None:
    def is_intact(slot: int, key: bytes) -> bool:
        raise NotImplementedError

    device, disk = Device(), Tier(DISK, 2, Unknown(), [kept(0, 1, num_uses=2)], is_intact)
    device.enter(2, num_uses=4)
    assert [move.target_slot for move in keep_prefixes(device.cache, [disk], file)] == [1]
    assert keys_of(disk) == {key(1), key(2)}


def test_a_damaged_copy_on_disk_is_written_anew(file: DiskFile) -> None:
    device = Device()
    disk = Tier(DISK, 1, Unknown(), [kept(0, 1, num_uses=5)], lambda slot, key: False)
    device.enter(1, num_uses=3)
    assert [move.key for move in keep_prefixes(device.cache, [disk], file)] == [key(1)]
    assert disk.num_broken == 1


def test_what_was_kept_and_asked_for_is_not_kept_without_its_parent(file: DiskFile) -> None:
    """A parent that this run did not ask for counts half: its child counts no more."""
    disk = Tier(DISK, 2, Unknown(), [kept(0, 1, num_uses=8), kept(1, 1, 2, num_uses=8)])
    disk.find(key(1, 2))
    device = Device()
    device.enter(3, num_uses=5)
    device.enter(3, 4, num_uses=5)
    assert [move.key for move in keep_prefixes(device.cache, [disk], file)] == [key(3), key(3, 4)]
    assert keys_of(disk) == {key(3), key(3, 4)}


def test_a_block_counts_as_much_as_the_most_counted_of_its_copies(file: DiskFile) -> None:
    device, host, disk = Device(), Tier(HOST, 9, Unknown()), Tier(DISK, 2, Unknown())
    device.enter(1, num_uses=2)
    put(host, 1, num_uses=9)
    device.enter(1, 2, num_uses=7)
    device.enter(3, num_uses=6)
    moves = keep_prefixes(device.cache, [host, disk], file)
    assert [(move.source, move.key, move.num_uses) for move in moves] == [
        (Place.DEVICE, key(1), 9),
        (Place.DEVICE, key(1, 2), 7),
    ]


def test_a_block_whose_parent_is_nowhere_is_not_kept(file: DiskFile) -> None:
    device, host, disk = Device(), Tier(HOST, 9, Unknown()), Tier(DISK, 9, Unknown())
    put(host, 1, 2, num_uses=9)
    put(host, 1, 2, 3, num_uses=9)
    device.enter(4, num_uses=1)  # its own request's
    device.enter(4, 5, num_uses=9)
    assert keep_prefixes(device.cache, [host, disk], file) == []
    assert keys_of(disk) == set()


@settings(max_examples=200, deadline=None)
@given(
    uses=st.dictionaries(st.lists(st.integers(0, 2), min_size=1, max_size=4).map(tuple), st.integers(0, 5)),
    num_on_device=st.integers(0, 4),
    num_slots=st.integers(1, 12),
)
def test_whole_prefixes_are_kept(
    file: DiskFile, uses: dict[tuple[int, ...], int], num_on_device: int, num_slots: int
) -> None:
    """The first num_on_device blocks of every prefix are on the device, the rest of it lies in host memory. A child may
    count more than its parent, and what is not in uses is missing below the device."""
    device, host, disk = Device(), Tier(HOST, 99, Unknown()), Tier(DISK, num_slots, Unknown())
    counts: dict[tuple[int, ...], int] = {}
    for chain in sorted({prompt[:end] for prompt in uses for end in range(1, len(prompt) + 1)}):
        if len(chain) <= num_on_device:
            counts[chain] = device.enter(*chain, num_uses=uses.get(chain, 1)).num_uses
        elif chain in uses:
            counts[chain] = put(host, *chain, num_uses=uses[chain]).num_uses
    keep_prefixes(device.cache, [host, disk], file)
    stay = {chain for chain in counts if key(*chain) in keys_of(disk)}
    values = {chain: min(counts.get(chain[:end], 0) for end in range(1, len(chain) + 1)) for chain in counts}
    shared = {chain for chain, value in values.items() if value > 1}
    assert stay <= shared and len(stay) == len(disk) == min(num_slots, len(shared))
    assert all(chain[:-1] in stay for chain in stay if len(chain) > 1)
    assert min((values[chain] for chain in stay), default=9) >= max(
        (values[chain] for chain in shared - stay), default=0
    )
