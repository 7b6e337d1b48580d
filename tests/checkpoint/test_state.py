"""A job's state survives a crash at every single file operation, and a disk that fails at any of them."""

import random
from pathlib import Path
from typing import IO, Any

import pytest

from batchrunner.checkpoint import state as state_module
from batchrunner.checkpoint.state import JobState, open_state
from batchrunner.checkpoint.storage import Storage
from batchrunner.errors import DataError, StorageError

# A process that dies leaves its files open.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

IDS = [bytes([i]) * 16 for i in range(12)]


def result(number: int) -> dict[str, Any]:
    return {
        "text": f"answer {number}",
        "finish_reason": "stop",
        "num_prompt_tokens": number,
        "num_output_tokens": 2,
        "num_cached_tokens": 0,
        "num_preemptions": 0,
        "error_type": None,
        "error": None,
    }


class Crash(BaseException):
    """The process is gone: nothing that handles errors may see it."""


class CrashingStorage(Storage):
    """Dies before its n-th operation, or half-way through it where it is an append."""

    def __init__(self, dies_at: int, error: type[BaseException] = Crash) -> None:
        self.num_operations = 0
        self._dies_at = dies_at
        self._error = error

    def _count(self) -> None:
        self.num_operations += 1
        if self.num_operations == self._dies_at:
            raise self._error(28, "No space left on device") if self._error is OSError else self._error()

    def create(self, path: Path) -> IO[bytes]:
        self._count()
        return super().create(path)

    def append(self, file: IO[bytes], data: bytes) -> None:
        try:
            self._count()
        except BaseException:
            super().append(file, data[: len(data) // 2])
            raise
        super().append(file, data)

    def sync(self, file: IO[bytes]) -> None:
        self._count()
        super().sync(file)

    def sync_path(self, path: Path) -> None:
        self._count()
        super().sync_path(path)

    def publish(self, temporary: Path, final: Path) -> None:
        self._count()
        super().publish(temporary, final)
        self._count()

    def remove(self, path: Path) -> None:
        self._count()
        super().remove(path)


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "PART_ROWS", 3)


def known(state: JobState) -> set[bytes]:
    return set(state.answered_ids().to_pylist())


def work(state: JobState, durable: set[bytes], order: list[int]) -> None:
    """Finish what is not finished yet; durable collects what must survive from now on."""
    done = known(state)
    for number in order:
        if IDS[number] in done:
            continue
        state.save(IDS[number], [number, number + 1])
        state.finish(IDS[number], result(number))
        state.sync()
        durable.add(IDS[number])
    state.compact()


def texts(state: JobState) -> dict[bytes, str]:
    found: dict[bytes, str] = {}
    for table in state.results():
        for row in table.to_pylist():
            assert found.setdefault(row["request_id"], row["text"]) == row["text"]
    return found


EXPECTED = {IDS[i]: f"answer {i}" for i in range(len(IDS))}


def test_a_crash_at_any_operation_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    dies_at, finished = 1, False
    while not finished:
        folder = tmp_path / str(dies_at)
        durable: set[bytes] = set()
        try:
            state = open_state(folder, CrashingStorage(dies_at))
            work(state, durable, list(range(len(IDS))))
            finished = True
        except Crash:
            pass
        state = open_state(folder, Storage())
        assert durable <= known(state)
        work(state, durable, list(range(len(IDS))))
        assert texts(state) == EXPECTED
        state.close()
        dies_at += 1
    assert dies_at > 60  # every operation was tried


def test_crash_after_crash_still_ends_whole(tmp_path: Path) -> None:
    for seed in range(40):
        rng = random.Random(seed)
        folder, durable = tmp_path / str(seed), set[bytes]()
        for _ in range(30):
            try:
                state = open_state(folder, CrashingStorage(rng.randrange(1, 25)))
                assert durable <= known(state)
                work(state, durable, rng.sample(range(len(IDS)), len(IDS)))
            except Crash:
                continue
        state = open_state(folder, Storage())
        work(state, durable, list(range(len(IDS))))
        assert texts(state) == EXPECTED
        state.close()


def test_a_full_disk_stops_the_job_with_its_reason(tmp_path: Path) -> None:
    num_stopped = 0
    for fails_at in range(1, 60):
        folder = tmp_path / str(fails_at)
        durable: set[bytes] = set()
        try:
            work(open_state(folder, CrashingStorage(fails_at, OSError)), durable, list(range(len(IDS))))
        except StorageError as error:
            assert "No space left on device" in str(error)
            num_stopped += 1
        state = open_state(folder, Storage())
        assert durable <= known(state)
        work(state, durable, list(range(len(IDS))))
        assert texts(state) == EXPECTED
        state.close()
    assert num_stopped > 50


def test_tokens_of_running_requests_survive(tmp_path: Path) -> None:
    state = open_state(tmp_path, Storage())
    state.save(IDS[0], [5])
    state.save(IDS[0], [5, 6, 7])
    state.save(IDS[1], [8])
    state.finish(IDS[1], result(1))
    state.sync()
    state.close()
    for _ in range(2):  # the second attempt reads what the first one carried over
        state = open_state(tmp_path, Storage())
        assert state.saved == {IDS[0]: [5, 6, 7]}
        assert known(state) == {IDS[1]}
        state.close()


def test_old_journals_are_dropped_once_a_new_one_holds_all(tmp_path: Path) -> None:
    for _ in range(4):
        state = open_state(tmp_path, Storage())
        work(state, set(), list(range(len(IDS))))
        state.close()
    assert len(list((tmp_path / "journal").glob("*.journal"))) == 1


def test_a_part_changed_on_disk_is_refused(tmp_path: Path) -> None:
    state = open_state(tmp_path, Storage())
    work(state, set(), list(range(len(IDS))))
    state.close()
    part = next((tmp_path / "parts").glob("*.parquet"))
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    with pytest.raises(DataError, match="has changed since"):
        open_state(tmp_path, Storage()).answered_ids()
    part.unlink()
    with pytest.raises(DataError, match="is missing"):
        open_state(tmp_path, Storage()).answered_ids()


def test_a_torn_tail_is_kept_aside(tmp_path: Path) -> None:
    state = open_state(tmp_path, Storage())
    state.finish(IDS[0], result(0))
    state.sync()
    state.close()
    journal = next((tmp_path / "journal").glob("*.journal"))
    journal.write_bytes(journal.read_bytes() + b"\xb7REC torn")
    state = open_state(tmp_path, Storage())
    assert known(state) == {IDS[0]}
    assert journal.with_suffix(".torn").read_bytes() == b"\xb7REC torn"
    state.close()


def test_leftovers_of_a_crash_are_removed_at_the_end(tmp_path: Path) -> None:
    state = open_state(tmp_path, Storage())
    work(state, set(), list(range(len(IDS))))
    committed = {part.name for part in state.parts}
    for name in ("000099.parquet", "000100.parquet.tmp"):
        (tmp_path / "parts" / name).write_bytes(b"half")
    state.remove_leftovers()
    assert {path.name for path in (tmp_path / "parts").iterdir()} == committed
    state.close()
