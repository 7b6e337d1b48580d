"""What a job file asks for, and what memory there is for it: known before a weight is loaded."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.compute as pc

from batchrunner.data.spool import Spool, write_spool
from batchrunner.engine.build_scheduler import limits_for
from batchrunner.engine.memory import Budget, activation_bytes, budget_for, free_host_bytes
from batchrunner.engine.models import find_model
from batchrunner.errors import ModelError
from batchrunner.simulate.model_shape import ModelShape
from batchrunner.spec import JobFile, JobSpec

TOKEN_BYTES = 4  # of a prompt in the spool


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """num_requests: distinct ones, each computed once. num_answer_tokens: the most that all answers can have."""

    name: str
    num_rows: int
    num_failed: int
    errors: dict[str, int]
    num_requests: int
    num_prompt_tokens: int
    num_answer_tokens: int
    num_too_long: int  # rows whose prompt fills the model's context
    num_too_large: int  # rows whose prompt and answer the whole KV pool would not hold

    @property
    def mean_tokens(self) -> float:
        num_asked = self.num_rows - self.num_failed
        return (self.num_prompt_tokens + self.num_answer_tokens) / max(1, num_asked)


@dataclass(frozen=True, slots=True)
class JobFilePlan:
    """max_running: requests at once, if memory is enough for them."""

    jobs: list[PlannedJob]
    device: str
    budget: Budget
    max_running: int

    @property
    def num_rows_at_once(self) -> int:
        """Average rows that memory is enough for, if they share nothing and their answers are as long as may be."""
        num_tokens = sum(job.num_prompt_tokens + job.num_answer_tokens for job in self.jobs)
        return self.budget.num_rows_at_once(num_tokens / max(1, self._num_asked))

    @property
    def peak_share(self) -> float:
        """Of the pool, when as many such rows run as may; above 1 requests wait for memory, not for seats."""
        return min(self.max_running, self._num_asked) / max(1, self.num_rows_at_once)

    @property
    def _num_asked(self) -> int:
        return sum(job.num_rows - job.num_failed for job in self.jobs)

    def to_dict(self) -> dict[str, Any]:
        budget = {**asdict(self.budget), "kv_bytes": self.budget.kv_bytes, "num_kv_tokens": self.budget.num_kv_tokens}
        found = {**asdict(self), "budget": budget}
        return {**found, "num_rows_at_once": self.num_rows_at_once, "peak_share": self.peak_share}


def plan_job_file(job_file: JobFile, on_rows: Callable[[str, int], None] = lambda name, count: None) -> JobFilePlan:
    """Read and tokenise all rows, and size the pool as a run would now. The weights are not loaded.

    on_rows is told a job's name and how many rows came through. Raises what reading input raises, ModelError,
    DeviceError.
    """
    from batchrunner.engine.model_runner import device_for  # torch and transformers take seconds to import
    from batchrunner.engine.tokenizer import Tokenizer

    files = find_model(job_file.model)
    if not files.has_tokenizer:
        raise ModelError(f"model {files.folder}: has no tokenizer, which prompts need")
    config, device = job_file.engine, device_for(job_file.engine)
    shape = ModelShape.from_config(files.folder / "config.json", config.dtype_on(device.type))
    config_json = json.loads((files.folder / "config.json").read_text())
    limits = limits_for(config, device.type)
    free = free_host_bytes()
    if device.type == "cuda":
        import torch

        free = int(torch.cuda.mem_get_info(device)[0])
    activations = activation_bytes(
        limits.max_batch_tokens,
        shape.hidden,
        int(config_json.get("intermediate_size") or 4 * shape.hidden),
        min(limits.max_running, limits.max_batch_tokens),
        shape.vocabulary,
        shape.dtype_bytes,
    )
    free -= shape.weight_bytes
    budget = budget_for(config, device.type, free, shape.kv_bytes_per_token, shape.weight_bytes, activations)
    tokenizer = Tokenizer(files.folder)
    with TemporaryDirectory() as folder:
        jobs = []
        for index, job in enumerate(job_file.jobs):
            counter = _Counter(job.name, on_rows)
            spool = write_spool(job, tokenizer, "", Path(folder) / f"{index}.arrow", counter)
            jobs.append(_planned(job, spool, budget, shape.max_position))
            del spool  # its file is mapped
    return JobFilePlan(jobs, device.type, budget, limits.max_running)


class _Counter:
    def __init__(self, name: str, on_rows: Callable[[str, int], None]) -> None:
        self._name, self._on_rows, self._count = name, on_rows, 0

    def __call__(self, count: int) -> None:
        self._count += count
        self._on_rows(self._name, self._count)


def _planned(job: JobSpec, spool: Spool, budget: Budget, context_len: int) -> PlannedJob:
    table = spool.table
    num_tokens = pc.divide(pc.binary_length(table["prompt"]), TOKEN_BYTES)
    asked = table["error_type"].is_null().to_pylist()
    sizes = num_tokens.to_pylist()
    answers = [
        max(0, min(spool.sampling(row).max_tokens, context_len - size)) if size is not None else 0
        for row, size in enumerate(sizes)
    ]
    needed = (size + answer - 1 for size, answer in zip(sizes, answers, strict=True) if size is not None and answer)
    counted = pc.value_counts(table["error_type"].combine_chunks().drop_null()).to_pylist()
    return PlannedJob(
        name=job.name,
        num_rows=len(spool),
        num_failed=len(asked) - sum(asked),
        errors={item["values"]: item["counts"] for item in counted},
        num_requests=pc.count_distinct(spool.request_ids, mode="only_valid").as_py(),
        num_prompt_tokens=pc.sum(num_tokens).as_py() or 0,
        num_answer_tokens=sum(answers),
        num_too_long=sum(size is not None and size >= context_len for size in sizes),
        num_too_large=sum(tokens > budget.num_kv_tokens for tokens in needed),
    )
