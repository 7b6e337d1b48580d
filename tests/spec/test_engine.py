"""The engine section of a job file: sizes with their units, and wrong values named."""

from typing import Any

import pytest

from batchrunner.spec.types import parse_bytes
from tests.jobs import build, document, refusal


@pytest.mark.parametrize(
    ("engine", "line"),
    [
        ({"max_running": -1}, ".max_running: -1 input should be greater than or equal to 1"),
        ({"max_running": "many"}, ".max_running: 'many' input should be 'auto' or a whole number"),
        ({"kv_memory": [1]}, ".kv_memory: input should be 'auto' or a whole number"),
        ({"kv_memory": 16**5000}, f".kv_memory: this number input should be less than {2**63}"),
        ("fast", ": 'fast' input should be a mapping"),
    ],
)
def test_one_mistake_in_the_engine_gets_one_line(engine: Any, line: str) -> None:
    assert refusal(document() | {"engine": engine}) == f"jobs.yaml: engine{line}"


@pytest.mark.parametrize(
    ("engine", "line"),
    [
        ({"device": "tpu"}, "engine.device: 'tpu' input should be 'auto', 'cpu' or 'cuda'"),
        (
            {"policy": "lifo"},
            "engine.policy: 'lifo' input should be 'prefix', 'fcfs', 'sjf', 'priority' or 'mlfq'",
        ),
        ({"block_size": 2000}, "engine.block_size: 2000 input should be less than or equal to 1024"),
        ({"kv_tokens": 0}, "engine.kv_tokens: 0 input should be greater than or equal to 1"),
        ({"kv_memory": "lots"}, "engine.kv_memory: 'lots' not a size; write a number of bytes or, for example, 8GiB"),
        (
            {"kv_memory": "8GiB", "kv_tokens": 64},
            "engine: kv_tokens and kv_memory both size the KV pool; give one of them",
        ),
    ],
)
def test_a_wrong_engine_value_is_named_with_its_field(engine: dict[str, Any], line: str) -> None:
    assert f"jobs.yaml: {line}" in refusal(document() | {"engine": engine}).splitlines()


@pytest.mark.parametrize(
    ("written", "num_bytes"),
    [
        ("8GiB", 8 * 2**30),
        ("8gib", 8 * 2**30),
        ("8Gi", 8 * 2**30),
        ("8G", 8 * 10**9),
        ("500 MB", 500 * 10**6),
        ("1.5KiB", 1536),
        ("2T", 2 * 10**12),
        ("12345", 12345),
        ("100B", 100),
        (4096, 4096),
        ("auto", "auto"),
    ],
)
def test_sizes_are_read_with_their_units(written: Any, num_bytes: Any) -> None:
    assert parse_bytes(written) == num_bytes
    assert build(document() | {"engine": {"kv_memory": written}}).engine.kv_memory == num_bytes


@pytest.mark.parametrize("written", ["-1GiB", "8XB", "GiB", "8 Gi B", "1e9", "", "0"])
def test_what_is_no_size_is_refused(written: str) -> None:
    assert f"jobs.yaml: engine.kv_memory: {written!r} " in refusal(document() | {"engine": {"kv_memory": written}})


@pytest.mark.parametrize("written", ["8iB", "8i", "9" * 400, "9" * 30, "٣GiB", 2**63])
def test_a_malformed_or_endless_size_is_refused_like_any_other(written: Any) -> None:
    assert "engine.kv_memory" in refusal(document() | {"engine": {"kv_memory": written}})


def test_a_whole_number_of_bytes_is_exact() -> None:
    assert parse_bytes("9007199254740993") == 2**53 + 1
