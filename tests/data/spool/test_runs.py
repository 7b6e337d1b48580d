"""A run goes on with the spool that an interrupted one left, and leaves none when it is done."""

from pathlib import Path

import pytest

from batchrunner.data.spool import writer as spool_writer
from batchrunner.run.progress import Snapshot
from batchrunner.run.submit import run_job_file
from tests.jobs import SilentProgress, answers, job_file, run, write_jsonl


class StopRunning(Exception):  # noqa: N818  what Ctrl-C is in this test
    pass


class Stopped(SilentProgress):
    def running(self, snapshot: Snapshot) -> None:
        raise StopRunning


def test_the_spool_is_kept_until_the_job_is_done(
    chat_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_jsonl(tmp_path / "in.jsonl", [{"text": f"row {i}"} for i in range(20)])
    loaded = job_file(chat_model, tmp_path, {"sampling": {"max_tokens": 3}})
    with pytest.raises(StopRunning):
        run_job_file(loaded, Stopped())
    spool = tmp_path / "out0" / ".batchrun" / "spool"
    written = (spool / "000000.arrow").stat().st_mtime_ns
    monkeypatch.delattr(spool_writer, "read_rows")  # nothing is spooled again
    with pytest.raises(StopRunning):
        run_job_file(loaded, Stopped())
    assert (spool / "000000.arrow").stat().st_mtime_ns == written
    summary = run(loaded)
    assert (summary.num_rows, summary.num_failed) == (20, 0)
    assert len(answers(tmp_path / "out0")) == 20
    assert not spool.exists()
