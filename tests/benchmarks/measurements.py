"""What docs/benchmarks.md says beside the tables of `batchrun bench`: one section each, as Markdown."""

import time
from collections.abc import Sequence

import torch
from transformers import AutoModelForCausalLM

from batchrunner.bench.contests import Way, run_entrant
from batchrunner.bench.curve import decode_step_seconds
from batchrunner.bench.results import Entrant
from batchrunner.bench.workloads import Workloads, WorkRow
from batchrunner.engine.model.model_files import find_model
from batchrunner.generate.engine import Engine
from batchrunner.spec.engine import EngineConfig
from tests.engine.model.layers.perplexity import predict

CONFIG = EngineConfig(kv_tokens=60_000)


def workloads(seed: int = 0) -> Workloads:
    return Workloads(vocabulary=49_000, max_tokens=4096, seed=seed)


def table(workload: str, ours: Entrant, other: Entrant) -> str:
    return "\n".join(
        (
            f"| {workload} | rows/s | ratio |",
            "|---|---:|---:|",
            f"| {ours.name} | {ours.rows_per_second:.2f} | {other.seconds / ours.seconds:.2f}x |",
            f"| {other.name} | {other.rows_per_second:.2f} | |",
        )
    )


def prefix_caching(model: str) -> str:
    files, rows = find_model(model), workloads().annotate(64)
    cached = run_entrant(files, CONFIG, rows, Way("prefix caching"))
    alone = run_entrant(files, CONFIG, rows, Way("every prompt whole", {"prefix_caching": False}))
    title = "64 rows, one instruction of 404 tokens, 62 own, 24 out"
    return f"## Prefix caching\n\n{table(title, cached, alone)}"


def shared_prefix_steps(model: str) -> str:
    """A decode step of 128 requests over a long shared prefix against one over a short one."""
    long, short = (_decode_step_seconds(model, num_shared) for num_shared in (1600, 200))
    return (
        "## A long shared prefix\n\n"
        f"A decode step of 128 requests that share 1,600 tokens takes {1000 * long:.0f} ms, over 200 shared tokens "
        f"{1000 * short:.0f} ms: {long / short:.2f}x."
    )


def _decode_step_seconds(model: str, num_shared: int) -> float:
    rows = workloads().annotate(128, num_shared=num_shared, num_own=8, num_output=40)
    with Engine(model, kv_tokens=20_000, max_batch_tokens=4096) as engine:
        return decode_step_seconds(engine, rows)


def int8_against_float32(model: str) -> str:
    files, rows = find_model(model), workloads().flat(128)
    quantized = run_entrant(files, CONFIG, rows, Way("quantization: int8", {"quantization": "int8"}))
    exact = run_entrant(files, CONFIG, rows, Way("float32"))
    before, after = predict(model, None), predict(model, "int8")
    change, share = after.perplexity / before.perplexity - 1, before.share_equal(after)
    return (
        f"## int8\n\n{table('128 rows, 36 prompt tokens, 64 out, nothing shared', quantized, exact)}\n\n"
        f"Perplexity on a text that ships with the tests: {before.perplexity:.2f} in float32, {after.perplexity:.2f} "
        f"in int8 ({change:+.2%}); {share:.1%} of the most probable next tokens are the same."
    )


def against_transformers(model: str) -> str:
    """Static batches of transformers' generate; all rows of a workload have one length, so there is nothing to pad."""
    files = find_model(model)
    flat, annotate = workloads().flat(64), workloads().annotate(32)
    peer = AutoModelForCausalLM.from_pretrained(files.folder, dtype=torch.float32).eval()
    sections = []
    for title, rows in (
        ("64 rows, 36 prompt tokens, 64 out, nothing shared", flat),
        ("32 rows, one instruction of 404 tokens, 62 own, 24 out", annotate),
    ):
        ours = run_entrant(files, CONFIG, rows, Way("batchrunner"))
        sections.append(table(title, ours, _generate(peer, rows)))
    return "## Against transformers' generate\n\n" + "\n\n".join(sections)


@torch.inference_mode()
def _generate(model: torch.nn.Module, rows: Sequence[WorkRow], batch_size: int = 64) -> Entrant:
    def generate(batch: Sequence[WorkRow], num_new: int) -> None:
        token_ids = torch.tensor([row.token_ids for row in batch])
        out = model.generate(  # type: ignore[operator]
            token_ids,
            attention_mask=torch.ones_like(token_ids),
            max_new_tokens=num_new,
            min_new_tokens=num_new,
            do_sample=False,
            pad_token_id=0,
        )
        assert out.shape[1] == token_ids.shape[1] + num_new

    generate(rows[:1], 2)  # warm up, as ours does
    started = time.perf_counter()
    for begin in range(0, len(rows), batch_size):
        generate(rows[begin : begin + batch_size], rows[0].max_tokens)
    seconds = time.perf_counter() - started
    return Entrant(f"transformers, static batches of {min(batch_size, len(rows))}", seconds, len(rows), 0, 0)
