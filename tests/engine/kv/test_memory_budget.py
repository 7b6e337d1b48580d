"""How much memory the KV pool and the host tier get."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch

from batchrunner.engine import allocate
from batchrunner.engine.kv import memory
from batchrunner.engine.kv.memory import (
    MAX_AUTO_HOST_BYTES,
    MAX_BLOCKS_FOR_TIER,
    SHARE_OF_DEVICE,
    SHARE_OF_HOST,
    SHARE_OF_HOST_FOR_TIER,
    Budget,
    activation_bytes,
    free_host_bytes,
    num_host_blocks,
    num_kv_blocks,
)
from batchrunner.engine.kv.places import Place
from batchrunner.engine.scheduling.limits import Limits
from batchrunner.errors import DeviceError
from batchrunner.spec.engine import EngineConfig

MIB, GIB = 2**20, 2**30


@pytest.mark.parametrize(
    ("options", "device", "free", "num_bytes"),
    [
        ({"kv_tokens": 1000}, "cpu", GIB, 62 * 1600),  # 1,000 tokens are 62 whole blocks of 16
        ({"kv_tokens": 1000}, "cuda", GIB, 62 * 1600),
        ({"kv_memory": 64 * MIB}, "cpu", 64 * MIB, 64 * MIB),
        ({"kv_memory": 64 * MIB}, "cuda", 64 * MIB, 64 * MIB),
        ({}, "cpu", GIB, int(SHARE_OF_HOST * GIB)),
        ({}, "cpu", 100 * GIB, MAX_AUTO_HOST_BYTES),
        ({}, "cuda", 100 * GIB, int(SHARE_OF_DEVICE * 100 * GIB)),
    ],
)
def test_the_pool_takes_what_is_asked_for_or_a_share(
    options: dict[str, Any], device: str, free: int, num_bytes: int
) -> None:
    assert num_kv_blocks(EngineConfig(**options), 100, device, free) == num_bytes // 1600


@pytest.mark.parametrize(
    ("options", "device", "free", "message"),
    [
        (
            {"kv_tokens": 160},
            "cpu",
            15_000,
            "engine.kv_tokens: 160 needs 1,000 bytes more than are free; give less, or kv_memory: auto",
        ),
        ({"kv_memory": 5000}, "cpu", 4000, "engine.kv_memory: 5,000 bytes needs 800 bytes more than are free"),
        ({"kv_tokens": 15}, "cpu", GIB, r"engine.kv_tokens: 15 holds not one block of 16 tokens \(100 bytes each\)"),
        ({"kv_tokens": 160}, "cuda", 15_000, "engine.kv_tokens: 160 needs 1,000 bytes more than are free"),
        ({"kv_memory": 1599}, "cuda", GIB, "engine.kv_memory: 1,599 bytes holds not one block"),
        ({}, "cpu", 3000, "engine.kv_memory: 1,200 bytes holds not one block"),
        ({}, "cuda", 1800, "engine.kv_memory: 1,530 bytes holds not one block"),
    ],
)
def test_a_pool_that_cannot_be_is_refused(options: dict[str, Any], device: str, free: int, message: str) -> None:
    with pytest.raises(DeviceError, match=message):
        num_kv_blocks(EngineConfig(**options), 100, device, free)


def test_a_pool_that_just_fits_is_taken() -> None:
    assert num_kv_blocks(EngineConfig(kv_tokens=160), 100, "cpu", 16_000) == 10
    assert num_kv_blocks(EngineConfig(kv_tokens=16), 100, "cpu", 1600) == 1


@pytest.mark.parametrize(
    ("options", "num_blocks", "expected"),
    [
        ({}, 10, MAX_BLOCKS_FOR_TIER * 10),
        ({}, 1_000_000, int(SHARE_OF_HOST_FOR_TIER * GIB) // 1600),
        ({"tiers": {"host": 16_500}}, 1_000_000, 10),
        ({"tiers": {"host": GIB}}, 1, GIB // 1600),
        ({"tiers": {"host": 0}}, 10, 0),
        ({"tiers": {"host": GIB}, "preemption": "recompute"}, 10, 0),
        ({"prefix_caching": False}, 10, 0),
    ],
)
def test_the_host_tier_takes_what_is_asked_for_or_a_share(
    options: dict[str, Any], num_blocks: int, expected: int
) -> None:
    assert num_host_blocks(EngineConfig(**options), num_blocks, 1600, GIB) == expected


def test_a_pool_that_leaves_no_memory_leaves_no_host_tier() -> None:
    assert num_host_blocks(EngineConfig(), 10, 1600, -5 * GIB) == 0


@pytest.mark.parametrize("free", [GIB, -2000])
def test_a_host_tier_that_cannot_be_is_refused(free: int) -> None:
    config = EngineConfig.model_validate({"tiers": {"host": max(0, free) + 2000}})
    missing = 2000 - min(0, free)
    with pytest.raises(DeviceError, match=rf"engine\.tiers\.host: [\d,]+ bytes are {missing:,} more than are free"):
        num_host_blocks(config, 10, 1600, free)


@pytest.mark.parametrize(("device", "num_blocks"), [("cpu", 75), ("cuda", 150)])
def test_the_host_tier_s_share_is_of_what_the_pool_leaves(
    monkeypatch: pytest.MonkeyPatch, device: str, num_blocks: int
) -> None:
    """Room for 1,000 blocks on the host, 500 of them in the pool if that lies there."""
    monkeypatch.setattr(memory, "free_host_bytes", lambda: 1000 * 1600)
    runner: Any = SimpleNamespace(
        device=torch.device(device),
        free_bytes=1000 * 1600,
        kv_bytes_per_token=100,
        weight_bytes=0,
        activation_bytes=lambda limits: 0,
        allocate=lambda *sizes: None,
        store=SimpleNamespace(reserve=lambda: None, measure=lambda: None),
    )
    given = allocate.allocate_memory(EngineConfig(kv_tokens=500 * 16), runner, Limits(8, 64), "a model")
    assert (given.budget.num_blocks, given.budget.num_host_blocks) == (500, num_blocks)
    assert [(tier.place, tier.num_slots) for tier in given.tiers] == [(Place.HOST, num_blocks)]


class ControlGroups:
    """A machine with 10,000 bytes free, and the control groups that this process is in."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._root, self._own = folder / "cgroup", folder / "own"
        self._root.mkdir()
        places = {"/proc/self/cgroup": self._own, "/sys/fs/cgroup": self._root}
        monkeypatch.setattr(memory, "Path", lambda name: places.get(name, Path(name)))
        monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=10_000))

    def enter(self, lines: str) -> None:
        self._own.write_text(lines)

    def limit(self, name: str, limit: str, current: int = 4000, inactive_file: int = 0) -> None:
        folder = self._root / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{current}\n")
        (folder / "memory.stat").write_text(f"anon 5\ninactive_file {inactive_file}\nactive_file 700\n")


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ControlGroups:
    return ControlGroups(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("limit", "expected"), [("max", 10_000), ("9000", 5000), ("50000", 10_000), ("4000", 0), ("3000", 0)]
)
@pytest.mark.parametrize("name", ["job/step/task", "job/step", "job", ""])
def test_any_control_group_above_us_may_be_tighter_than_the_machine(
    groups: ControlGroups, name: str, limit: str, expected: int
) -> None:
    groups.enter("0::/job/step/task\n")
    groups.limit("job/step/task", "20000")
    groups.limit(name, limit)
    assert free_host_bytes() == expected


def test_the_tightest_control_group_counts_and_none_of_another_process(groups: ControlGroups) -> None:
    groups.enter("0::/job/step\n")
    for name, limit in (("job", "7000"), ("job/step", "9000"), ("job/another", "4100"), ("another", "4200")):
        groups.limit(name, limit)
    assert free_host_bytes() == 3000


def test_cached_files_count_as_free(groups: ControlGroups) -> None:
    groups.enter("0::/job\n")
    groups.limit("job", "9000", current=8500, inactive_file=1500)
    assert free_host_bytes() == 2000
    groups.limit("job", "9000", current=8500, inactive_file=8000)
    assert free_host_bytes() == 8500


@pytest.mark.parametrize("lines", [None, "", "4:memory:/job\n1:name=systemd:/job\n", "0::/gone\n", "0::/../../job\n"])
def test_without_a_control_group_in_sight_the_machine_counts(groups: ControlGroups, lines: str | None) -> None:
    """No such file, another system's, version 1, or the group of a container that it does not see."""
    if lines is not None:
        groups.enter(lines)
    groups.limit("job", "5000")
    assert free_host_bytes() == 10_000


def budget(**options: int) -> Budget:
    sizes = {
        "weight_bytes": 3 * GIB,
        "activation_bytes": 200 * MIB,
        "kv_bytes_per_token": 2048,
        "block_size": 16,
        "num_blocks": 4096,
        "num_host_blocks": 0,
        "disk_bytes": 0,
    }
    return Budget(**{**sizes, **options})


def test_a_budget_says_what_goes_where() -> None:
    assert str(budget()) == (
        "memory: weights 3.0 GiB, activations about 200 MiB, KV 128 MiB = 4,096 blocks of 16 = 65,536 tokens of "
        "2,048 bytes"
    )
    below = str(budget(num_host_blocks=65_536, disk_bytes=1500 * GIB)).removeprefix(str(budget()))
    assert below == ", host tier 2.0 GiB, disk tier 1,500.0 GiB"


def test_a_budget_adds_up() -> None:
    assert (budget().block_bytes, budget().num_kv_tokens, budget().kv_bytes) == (32_768, 65_536, 128 * MIB)


@pytest.mark.parametrize(
    ("mean_tokens", "num_rows"), [(0, 4096), (16, 4096), (16.5, 2048), (17, 2048), (160, 409), (10**6, 0)]
)
def test_rows_that_share_nothing_take_whole_blocks(mean_tokens: float, num_rows: int) -> None:
    assert budget().num_rows_at_once(mean_tokens) == num_rows


def test_activations_are_those_of_the_widest_layer_and_the_logits() -> None:
    assert activation_bytes(1, hidden=10, widest=100, num_logits=0, vocabulary=1000, itemsize=2) == 760
    assert activation_bytes(0, hidden=10, widest=100, num_logits=3, vocabulary=1000, itemsize=2) == 6000
    assert activation_bytes(5, hidden=10, widest=100, num_logits=3, vocabulary=1000, itemsize=4) == 5 * 1520 + 12_000
