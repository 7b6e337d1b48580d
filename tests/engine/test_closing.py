"""What an engine leaves behind: kept KV only from between two steps, nothing held, and no answer lost by a cache."""

from pathlib import Path
from typing import Any

import pytest

from batchrunner import Engine, SamplingParams
from batchrunner.engine.kv.kv_store import KVStore
from batchrunner.engine.scheduling.schedule import Schedule
from batchrunner.errors import TierError

PREFIX = list(range(3, 67))
ROWS = [[*PREFIX, 70 + index] for index in range(4)]
SAMPLING = SamplingParams(max_tokens=4)


def options(folder: Path, **changes: Any) -> dict[str, Any]:
    return {"kv_tokens": 512, "tiers": {"disk": {"path": str(folder), "size": "4MiB", "keep": True}}, **changes}


def num_loaded(model: Path, folder: Path) -> int:
    with Engine(model, **options(folder)) as engine:
        engine.generate(ROWS, SAMPLING)
        return engine.counters.num_blocks_from_disk


def test_what_was_shared_is_kept(tiny_llama: Path, tmp_path: Path) -> None:
    assert num_loaded(tiny_llama, tmp_path) == 0
    assert num_loaded(tiny_llama, tmp_path) == len(PREFIX) // 16


def test_nothing_is_kept_of_a_run_that_broke_off_inside_a_step(
    tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyboardInterrupt), Engine(tiny_llama, **options(tmp_path)) as engine:
        run, num_steps = engine.runner.run, 0

        def interrupted(schedule: Schedule) -> list[int]:
            nonlocal num_steps
            num_steps += 1
            if num_steps == 3:
                raise KeyboardInterrupt
            return run(schedule)

        monkeypatch.setattr(engine.runner, "run", interrupted)
        engine.generate(ROWS, SAMPLING)
    assert num_loaded(tiny_llama, tmp_path) == 0


def test_a_tier_that_cannot_be_written_ends_the_run_and_blames_no_row(
    tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TierError), Engine(tiny_llama, **options(tmp_path)) as engine:

        def full(store: KVStore, moves: Any) -> None:
            raise TierError("the disk is gone")

        monkeypatch.setattr(KVStore, "move", full)
        with pytest.warns(UserWarning, match="not kept"):
            try:
                engine.generate(ROWS, SAMPLING)
            finally:
                engine.scheduler.check_integrity()
                engine.close()


def test_closing_twice_is_closing_once_and_gives_the_cache_back(tiny_llama: Path, tmp_path: Path) -> None:
    engine = Engine(tiny_llama, **options(tmp_path))
    store: KVStore = engine.runner.store  # type: ignore[attr-defined]
    engine.generate(ROWS, SAMPLING)
    engine.close()
    engine.close()
    assert store.kv.keys == []


def test_a_temporary_tier_is_not_filled_at_the_end(
    tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiers = {"disk": {"path": str(tmp_path), "size": "4MiB"}}
    engine = Engine(tiny_llama, **options(tmp_path, tiers=tiers))
    engine.generate(ROWS, SAMPLING)
    moved: list[Any] = []
    monkeypatch.setattr(engine.runner, "move", moved.append)
    engine.close()
    assert moved == []
    assert list(tmp_path.iterdir()) == []


def test_what_measuring_leaves_after_a_kill_is_never_found(tiny_llama: Path, tmp_path: Path) -> None:
    """Killed between the commit of the measured block and its removal."""
    from batchrunner.engine.kv.chain import ROOT_KEY
    from batchrunner.engine.kv.tiers.disk_file import DiskFile

    assert num_loaded(tiny_llama, tmp_path) == 0
    with Engine(tiny_llama, kv_tokens=512) as engine:
        identity, block_bytes = f"{engine.fingerprint}-block16", engine.budget.block_bytes
    disk = DiskFile.open(tmp_path, 4 * 2**20, block_bytes, identity, keep=True)
    kept = {block.slot for block in disk.kept}
    assert kept, "it is the file of that engine"
    slot = next(slot for slot in range(disk.num_slots) if slot not in kept)
    disk.begin(slot)
    disk.commit(slot, ROOT_KEY, ROOT_KEY, 1)
    disk.close()
    assert num_loaded(tiny_llama, tmp_path) == len(PREFIX) // 16
