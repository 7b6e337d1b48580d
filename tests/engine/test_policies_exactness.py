"""Every policy with every way to answer a lack of memory: the same greedy tokens, those of transformers."""

from pathlib import Path
from typing import Any

import pytest

from batchrunner import Engine
from tests.engine.exactness import Case, Reference, differences, mixed_cases
from tests.models import TINY_VOCABULARY

POLICIES: dict[str, dict[str, Any]] = {
    "prefix": {"policy": "prefix"},
    "fcfs": {"policy": "fcfs"},
    "sjf": {"policy": "sjf"},
    "priority": {"policy": "priority", "ageing": 0.1},
    "mlfq": {"policy": "mlfq", "mlfq": {"slice": 2, "boost_every": 60}},
    "every fifth step": {"policy": "fcfs", "schedule_every": 5},
}
MEMORIES: dict[str, dict[str, Any]] = {
    "recompute": {"preemption": "recompute"},
    "recompute, least recently used": {"preemption": "recompute", "eviction": "lru"},
    "swap to host": {"preemption": "swap", "tiers": {"host": "16MiB"}},
    "swap to little host, then disk": {"preemption": "swap", "tiers": {"host": 2_048, "disk": {"size": "16MiB"}}},
    "swap to disk": {"preemption": "swap", "tiers": {"host": 0, "disk": {"size": "16MiB"}}},
    "swap, least recently used": {"preemption": "swap", "eviction": "lru", "tiers": {"host": "1MiB"}},
    "auto": {"preemption": "auto"},
}


@pytest.fixture(scope="module")
def asked(tiny_llama: Path) -> tuple[Reference, list[Case], list[list[int]]]:
    reference = Reference(tiny_llama)
    cases = mixed_cases(60, TINY_VOCABULARY, max_prompt=100, max_new=24, seed=3)
    return reference, cases, [reference.generate(case) for case in cases]


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("policy", POLICIES)
def test_no_token_differs(
    tiny_llama: Path,
    tmp_path: Path,
    asked: tuple[Reference, list[Case], list[list[int]]],
    policy: str,
    memory: str,
) -> None:
    reference, cases, expected = asked
    options = {**POLICIES[policy], **MEMORIES[memory], "block_size": 4, "kv_tokens": 124}
    if "disk" in memory:
        options["tiers"] = {**options["tiers"], "disk": {**options["tiers"]["disk"], "path": str(tmp_path)}}
    with Engine(tiny_llama, **options) as engine:
        got = engine.generate([case.token_ids for case in cases], [case.sampling for case in cases])
        engine.scheduler.check_integrity()
        counters = engine.counters
    assert differences(reference, cases, expected, got) == []
    assert counters.num_preemptions + counters.num_displacements > 0
    if memory.startswith("swap"):
        assert counters.num_blocks_from_host + counters.num_blocks_from_disk > 0
        assert bool(counters.num_blocks_to_disk) == ("disk" in memory)
    if memory.startswith("recompute"):
        assert counters.num_recomputed_tokens > 0
        assert counters.num_blocks_to_host == counters.num_blocks_to_disk == 0
