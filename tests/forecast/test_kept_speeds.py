"""Speeds that were measured are there in the next run, and a file that is no use does no harm."""

from pathlib import Path

import pytest
import torch

from batchrunner.engine.model.speeds import Speeds
from batchrunner.forecast.kept_speeds import KeptSpeeds
from batchrunner.spec.engine import EngineConfig

SPEEDS = Speeds(2e11, 2.5e10, 0.001)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BATCHRUNNER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def kept(model: str = "model", quantization: str | None = None, device: str = "cpu") -> KeptSpeeds:
    return KeptSpeeds.of(model, EngineConfig.model_validate({"quantization": quantization}), device)


def test_the_next_run_finds_what_was_saved() -> None:
    assert kept().speeds is None
    kept().save(SPEEDS)
    assert kept().speeds == SPEEDS


def test_another_model_or_machine_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    kept().save(SPEEDS)
    assert [other.speeds for other in (kept("other"), kept(quantization="int8"), kept(device="cuda"))] == [None] * 3
    num_threads = torch.get_num_threads() + 1
    monkeypatch.setattr(torch, "get_num_threads", lambda: num_threads)
    assert kept().speeds is None


@pytest.mark.parametrize(
    "text", ["", "{", "5", "[1, 2]", '["1", 2, 3]', "[0, 1, 0]", "[1, 1, -1]", "[NaN, 1, 0]", "[true, 1, 0]"]
)
def test_a_damaged_file_is_as_good_as_none(cache: Path, text: str) -> None:
    kept().save(SPEEDS)
    (path,) = (cache / "speeds").iterdir()
    path.write_text(text)
    assert kept().speeds is None
    kept().save(SPEEDS)
    assert kept().speeds == SPEEDS


def test_a_folder_that_cannot_be_written_is_left(cache: Path) -> None:
    cache.write_text("a file where the folder should be")
    speeds = kept()
    speeds.save(SPEEDS)
    assert speeds.speeds == SPEEDS
    assert kept().speeds is None
