"""Greedy tokens equal transformers.generate, whatever the block size, the pool, the batch and the cache."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from batchrunner import Engine
from batchrunner.engine.model.model_files import find_model
from batchrunner.engine.model.prefix_groups import GroupRule
from batchrunner.kernels.attention_work import AttentionWork
from tests.engine.exactness import TIE, Case, Reference, differences, mixed_cases
from tests.models import SMOLLM2, TINY_FAMILIES, TINY_VOCABULARY

# A pool of few tokens holds two or three requests: running ones are evicted all the time.
LAYOUTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "block 1": {"block_size": 1},
    "block 7": {"block_size": 7},
    "block 16, small pool": {"block_size": 16, "kv_tokens": 144},
    "block 1, small pool": {"block_size": 1, "kv_tokens": 130},
    "block 7, small pool": {"block_size": 7, "kv_tokens": 133},
    "batch of 1": {"max_running": 1},
    "batch of 3": {"max_running": 3, "block_size": 7},
    "short steps": {"max_batch_tokens": 11, "block_size": 7},
    "static": {"batching": "static", "max_running": 8},
    "no prefix caching": {"prefix_caching": False},
    "arrival order": {"policy": "fcfs", "kv_tokens": 400},
    "grouped, block 1": {"block_size": 1},
    "grouped, block 16, small pool": {"block_size": 16, "kv_tokens": 160},
    "grouped, batch of 8": {"block_size": 4, "max_running": 8},
}


@contextmanager
def engine_for(folder: Path, layout: str) -> Iterator[Any]:
    """The engine; in layouts called grouped every shared beginning is a prefix group, and there must be some."""
    with Engine(folder, **{"kv_tokens": 20_000, **LAYOUTS[layout]}) as engine:
        runner: Any = engine.runner
        if layout.startswith("grouped"):
            runner.group_rule = GroupRule(min_members=2, min_tokens=1)
        num_groups = 0
        plan = runner.kernels.plan

        def counting_plan(work: AttentionWork, block_size: int) -> Any:
            nonlocal num_groups
            num_groups += sum(map(len, work.levels))
            return plan(work, block_size)

        runner.kernels.plan = counting_plan
        yield engine
        assert num_groups > 0 or not layout.startswith("grouped")


@pytest.fixture(scope="module", params=TINY_FAMILIES)
def tiny(
    request: pytest.FixtureRequest, tiny_models: dict[str, Path]
) -> tuple[Path, Reference, list[Case], list[list[int]]]:
    folder = tiny_models[request.param]
    reference = Reference(folder)
    cases = mixed_cases(200, TINY_VOCABULARY, max_prompt=100, max_new=24)
    return folder, reference, cases, [reference.generate(case) for case in cases]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tiny_models_never_differ(tiny: tuple[Path, Reference, list[Case], list[list[int]]], layout: str) -> None:
    folder, reference, cases, expected = tiny
    with engine_for(folder, layout) as engine:
        # One at a time is slow, and its second pass would show nothing that other layouts do not.
        for state in ("cold",) if layout == "batch of 1" else ("cold", "warm"):
            got = engine.generate([case.token_ids for case in cases], [case.sampling for case in cases])
            assert differences(reference, cases, expected, got) == [], state
            engine.scheduler.check_integrity()
        if "small pool" in layout:
            assert engine.counters.num_preemptions > 0
            assert engine.scheduler.cache.num_evictions > 100


@pytest.fixture(scope="module")
def smollm2() -> tuple[Path, Reference, list[Case], list[list[int]]]:
    folder = find_model(SMOLLM2).folder
    reference = Reference(folder)
    cases = mixed_cases(200, 40_000, max_prompt=90, max_new=12, seed=1)
    return folder, reference, cases, [reference.generate(case) for case in cases]


SMOLLM2_LAYOUTS = (
    "defaults",
    "block 1",
    "block 7, small pool",
    "block 16, small pool",
    "batch of 1",
    "batch of 3",
    "grouped, block 1",
    "grouped, block 16, small pool",
)


@pytest.mark.slow
@pytest.mark.parametrize("layout", SMOLLM2_LAYOUTS)
def test_smollm2_differs_only_at_ties(
    smollm2: tuple[Path, Reference, list[Case], list[list[int]]], layout: str
) -> None:
    folder, reference, cases, expected = smollm2
    with engine_for(folder, layout) as engine:
        # A batch of one takes as long as transformers itself; its warm pass would show nothing new.
        for _ in ("cold",) if layout == "batch of 1" else ("cold", "warm"):
            got = engine.generate([case.token_ids for case in cases], [case.sampling for case in cases])
            found = differences(reference, cases, expected, got)
            assert all(difference.gap <= TIE for difference in found), found
            assert len(found) < 0.01 * len(cases), found
