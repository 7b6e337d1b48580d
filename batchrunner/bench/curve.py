"""The batch curve: how long a decode step takes for 1 to 256 requests, and how long its matrix products alone."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from batchrunner.bench.results import BatchPoint
from batchrunner.bench.workloads import Workloads, WorkRow
from batchrunner.engine.model.layers.int8 import Int8Linear
from batchrunner.engine.model.layers.linear import PackedLinear, PlainLinear
from batchrunner.engine.model.layers.output_head import ScreenedHead
from batchrunner.engine.model.model_runner import ModelRunner
from batchrunner.errors import UsageError
from batchrunner.generate.engine import Engine

NUM_PROMPT = 32
NUM_OUTPUT = 16  # tokens of each request; the median of the steps counts


def batch_curve(
    engine: Engine, workloads: Workloads, batch_sizes: Sequence[int], on_point: Callable[[BatchPoint], None]
) -> list[BatchPoint]:
    """Requests that share nothing, all running at once, decoding.

    The engine must have room for the largest batch. Raises what decode_step_seconds does.
    """
    runner = engine.runner
    assert isinstance(runner, ModelRunner)
    points = []
    for size in batch_sizes:
        rows = workloads.flat(size, NUM_PROMPT, NUM_OUTPUT)
        points.append(BatchPoint(size, decode_step_seconds(engine, rows), _linear_seconds(runner, size)))
        on_point(points[-1])
    return points


def decode_step_seconds(engine: Engine, rows: Sequence[WorkRow]) -> float:
    """The median step once all rows, which must begin in one step and be of one length, have their first token.

    Raises RowError if the model fails on one, UsageError if there is no such step for want of context.
    """
    requests = [
        engine.request(f"{len(rows):016x}{index:016x}", row.token_ids, row.sampling) for index, row in enumerate(rows)
    ]
    for request in requests:
        engine.add(request)
    while not all(request.num_output_tokens or request.finish_reason for request in requests):
        engine.step()
    seconds = list(_step_seconds(engine))
    for request in requests:
        if request.error is not None:
            raise request.error
    if not seconds:
        raise UsageError(f"bench: the model's context of {engine.context_len:,} tokens is too short to measure steps")
    return statistics.median(seconds)


def _step_seconds(engine: Engine) -> Iterator[float]:
    while engine.has_unfinished:
        started = time.perf_counter()
        engine.step()
        yield time.perf_counter() - started


@torch.inference_mode()
def _linear_seconds(runner: ModelRunner, num_tokens: int) -> float:
    """One pass through all linear layers of the model, and nothing else; the output layer in the model's own numbers.

    A step may do with less where greedy tokens are found in bfloat16 (output_head.py).
    """
    layers = _linear_layers(runner)
    inputs = {width: torch.randn(num_tokens, width).to(runner.device, runner.dtype) for width, _ in layers}

    def run() -> float:
        started = time.perf_counter()
        for width, layer in layers:
            layer(inputs[width])
        if runner.device.type == "cuda":
            torch.cuda.synchronize(runner.device)
        return time.perf_counter() - started

    run()
    return statistics.median(run() for _ in range(5))


def _linear_layers(runner: ModelRunner) -> list[tuple[int, nn.Module]]:
    """Input width and module of each, the output layer included, as the device multiplies them fastest."""
    modules = [*runner.model.modules()]
    if isinstance(runner.head, ScreenedHead):
        modules.append(runner.head.linear)
    kinds = (PackedLinear, PlainLinear, Int8Linear, nn.Linear)
    layers = [(int(module.in_features), module) for module in modules if isinstance(module, kinds)]
    return layers + [(int(module.weight.shape[0]), module) for module in modules if isinstance(module, Conv1D)]
