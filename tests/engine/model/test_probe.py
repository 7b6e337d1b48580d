"""The quick measurement of a machine whose steps were never measured."""

import time

import pytest
import torch

from batchrunner.engine.model.probe import probe
from batchrunner.engine.model.speeds import Speeds


def test_it_is_quick_and_of_the_right_size() -> None:
    probe(torch.device("cpu"), torch.float32)  # code is loaded
    started = time.process_time()
    found = probe(torch.device("cpu"), torch.float32)
    assert time.process_time() - started < 3, "half a second, on a few threads"
    assert 1e9 < found.flops_per_second < 1e14
    assert 1e9 < found.bytes_per_second < 1e13
    assert found.overhead_seconds == 0


def test_many_times_as_fast() -> None:
    assert Speeds(100.0, 10.0, 1.0).times(0.5) == Speeds(50.0, 5.0, pytest.approx(2.0))
