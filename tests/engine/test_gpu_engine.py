"""The whole engine on the Triton kernels, under the interpreter: the tokens are those of the engine's own CPU path."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from batchrunner import Engine, SamplingParams
from batchrunner.engine.model.model_runner import ModelRunner
from batchrunner.engine.model.prefix_groups import GroupRule
from batchrunner.kernels.attention_work import AttentionWork
from batchrunner.kernels.gpu.gpu_kernels import GpuPlan, TritonKernels
from batchrunner.kernels.sampling_work import SamplingWork
from tests.models import TINY_VOCABULARY

LAYOUTS = [("llama", 4), ("llama", 16), ("qwen2", 16), ("mistral", 4), ("gpt2", 4)]
NUM_FUSED_LAYERS = {"llama": 2, "qwen2": 2, "mistral": 2, "gpt2": 0}  # gpt2's layers have other parts


class WatchedKernels(TritonKernels):
    """Notes what was to do in each step."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self.plans: list[GpuPlan] = []
        self.num_chosen_tokens = 0

    def plan(self, work: AttentionWork, block_size: int) -> GpuPlan:
        self.plans.append(super().plan(work, block_size))
        return self.plans[-1]

    def sample(self, logits: Tensor, work: SamplingWork) -> Tensor:
        self.num_chosen_tokens += len(logits)
        return super().sample(logits, work)


@contextmanager
def engine_on_triton(model: Path, **options: Any) -> Iterator[tuple[Engine, WatchedKernels]]:
    """An engine like Engine(model, **options), and the kernels it runs on."""
    with Engine(model, **options) as engine:
        kernels = WatchedKernels()
        runner = ModelRunner(engine.files, torch.device("cpu"), "float32", kernels=kernels)
        runner.allocate(engine.scheduler.pool.num_blocks, options["block_size"])
        runner.group_rule = GroupRule(min_members=2, min_tokens=1)
        engine.runner = runner
        yield engine, kernels
        engine.scheduler.check_integrity()


def questions_on_documents() -> list[list[int]]:
    """An instruction, two documents after it, questions on each; one on none, strangers, and a prompt that recurs."""
    rng = random.Random(0)

    def tokens(count: int) -> list[int]:
        return [rng.randrange(3, TINY_VOCABULARY) for _ in range(count)]

    instruction = tokens(20)
    prompts = [instruction + document + tokens(n) for document in (tokens(17), tokens(13)) for n in (1, 2, 3, 6)]
    return [*prompts, instruction + tokens(2), tokens(1), tokens(30), prompts[2]]


def greedy_params(count: int) -> list[SamplingParams]:
    return [SamplingParams(temperature=0, max_tokens=2 + index % 3) for index in range(count)]


def sampled_params(count: int) -> list[SamplingParams]:
    """Every way of sampling, and greedy ones among them."""
    ways: list[dict[str, Any]] = [
        {"temperature": 3.0},
        {"temperature": 4.0, "top_k": 20},
        {"temperature": 2.0, "top_p": 0.9},
        {"temperature": 3.0, "min_p": 0.05},
        {"temperature": 0.0},
        {"temperature": 5.0, "top_k": 60, "top_p": 0.95, "min_p": 0.001},
        {"temperature": 3.0},
    ]
    return [SamplingParams(max_tokens=2 + i % 3, seed=i, **ways[i % len(ways)]) for i in range(count)]


def generate(
    engine: Engine, prompts: Sequence[Sequence[int]], sampling: Sequence[SamplingParams]
) -> list[tuple[int, ...]]:
    completions = engine.generate(prompts, sampling)
    assert [completion.error for completion in completions] == [None] * len(prompts)
    return [completion.token_ids for completion in completions]


@pytest.mark.parametrize(("family", "block_size"), LAYOUTS)
def test_tokens_are_those_of_the_cpu(tiny_models: dict[str, Path], family: str, block_size: int) -> None:
    # The pool holds a part of the requests at a time; the steps are so short that chunks and decodes mix.
    options: dict[str, Any] = {"block_size": block_size, "kv_tokens": 112, "max_batch_tokens": 40}
    prompts = questions_on_documents()
    sampling = greedy_params(len(prompts))
    with Engine(tiny_models[family], **options) as engine:
        expected = generate(engine, prompts, sampling)
    with engine_on_triton(tiny_models[family], **options) as (engine, kernels):
        assert generate(engine, prompts, sampling) == expected
        substitutions = engine.runner.substitutions
    assert substitutions.num_fused_layers == NUM_FUSED_LAYERS[family]
    assert substitutions.kept == []
    assert max(len(plan.levels) for plan in kernels.plans) > 1
    assert any(plan.levels and plan.chunks is not None for plan in kernels.plans)


def test_sampled_tokens_are_those_of_the_cpu_whatever_else_runs(tiny_llama: Path) -> None:
    options: dict[str, Any] = {"block_size": 16, "kv_tokens": 112, "max_batch_tokens": 40}
    prompts = questions_on_documents()[4:]
    sampling = sampled_params(len(prompts))
    with Engine(tiny_llama, **options) as engine:
        expected = generate(engine, prompts, sampling)
        assert expected != generate(engine, prompts, greedy_params(len(prompts)))
    with engine_on_triton(tiny_llama, **options) as (engine, kernels):
        assert generate(engine, prompts, sampling) == expected
        assert kernels.num_chosen_tokens == sum(map(len, expected))
        assert generate(engine, prompts[5::-2], sampling[5::-2]) == expected[5::-2]
