"""What a job file asks for, and what it will take: known before a weight is loaded."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as pa

from batchrunner.checkpoint.storage import Storage
from batchrunner.data.prompt.prompts import Encoder
from batchrunner.data.spool.spool import prepare_spool
from batchrunner.engine.kv.memory import Budget, activation_bytes, budget_for, free_host_bytes
from batchrunner.engine.model.model_files import ModelFiles, find_model
from batchrunner.engine.scheduling.build_scheduler import limits_for
from batchrunner.engine.scheduling.limits import Limits
from batchrunner.errors import LockedError, OutputError, StorageError, described
from batchrunner.forecast.known_speeds import known_speeds
from batchrunner.forecast.length_history import LengthHistory, group_of
from batchrunner.identity import ID_BYTES
from batchrunner.output.folder import OutputFolder
from batchrunner.output.lock import output_lock
from batchrunner.plan.job_plan import Room
from batchrunner.plan.order import wanted_rows
from batchrunner.plan.prefix_order import order_by_prefix
from batchrunner.plan.run_plan import JobToPlan, Planner, is_hopeless, rows_of
from batchrunner.plan.spooling import field_orders_of, spool_of
from batchrunner.preview.figures import JobFilePlan, WhatIf
from batchrunner.preview.forecasts import Forecasts
from batchrunner.preview.job_figures import job_figures
from batchrunner.simulate.cost.model_shape import ModelShape
from batchrunner.simulate.cost.pace import pace_of
from batchrunner.spec.engine import EngineConfig
from batchrunner.spec.job import JobFile, JobSpec

if TYPE_CHECKING:
    import torch

OnRows = Callable[[str, int], None]


def plan_job_file(job_file: JobFile, on_rows: OnRows = lambda name, count: None, num_shards: int = 1) -> JobFilePlan:
    """Read and tokenise all rows, order them, size the pool as a run would now, and forecast the run.

    The weights are not loaded. The tokenised rows stay in the jobs' folders, where a run finds them. on_rows is told a
    job's name and how many rows came through. num_shards: machines that share the rows.

    Raises what reading input raises, ModelError, DeviceError, StorageError.
    """
    files = find_model(job_file.model)
    try:
        with ExitStack() as stack:
            return _plan(job_file, files, on_rows, num_shards, stack)
    except OSError as error:
        raise StorageError(f"{described(error)}; the plan needs room for the tokenised rows") from error


def _plan(job_file: JobFile, files: ModelFiles, on_rows: OnRows, num_shards: int, stack: ExitStack) -> JobFilePlan:
    from batchrunner.engine.model.device import device_for  # torch and transformers take seconds to import

    tokenizer = files.tokenizer_of_prompts()
    config, device = job_file.engine, device_for(job_file.engine)
    shape = ModelShape.from_config(files.folder / "config.json", config.dtype_on(device.type))
    limits = limits_for(config, device.type)
    budget = _budget(config, shape, device, limits)
    speeds = known_speeds(shape, config, device)
    temporary = Path(stack.enter_context(TemporaryDirectory(prefix="batchrunner-")))
    places = [stack.enter_context(_place(job, temporary / job.name)) for job in job_file.jobs]
    asked, num_requests = [], []
    for job, place in zip(job_file.jobs, places, strict=True):
        spool = spool_of(job, tokenizer, place.spool, _Counter(job.name, on_rows))
        rows = rows_of(spool, shape.max_position)
        wanted = wanted_rows(spool.request_ids, pa.array([], pa.binary(ID_BYTES)))
        num_requests.append(int(wanted.sum()))
        del spool.request_ids  # 16 bytes a row, kept for those who ask again
        wanted &= ~is_hopeless(rows, budget.block_size, budget.num_blocks)
        asked.append(JobToPlan(spool, rows, wanted, group_of(job), spool.token_ids))
    pa.default_memory_pool().release_unused()
    pace = pace_of(shape, speeds.speeds, device.type)
    room = Room(limits.max_running, budget.num_kv_tokens)
    known = LengthHistory({group_of(job) for job in job_file.jobs}).known.lengths()
    plan = Planner(asked, places[0].scratch, config, pace, room).plan(known)
    forecasts = Forecasts(config, shape, speeds, device.type, budget, plan)
    jobs = zip(job_file.jobs, asked, plan.jobs, num_requests, strict=True)
    return JobFilePlan(
        jobs=[job_figures(job, item, found, count, tokenizer.decode, budget) for job, item, found, count in jobs],
        device=device.type,
        budget={**asdict(budget), "kv_bytes": budget.kv_bytes, "num_kv_tokens": budget.num_kv_tokens},
        budget_text=str(budget),
        forecast=forecasts.as_it_is(),
        what_if=[*forecasts.what_if(), *_other_field_orders(job_file, tokenizer, places[0].scratch)],
        shards=forecasts.shards(num_shards) if num_shards > 1 else [],
    )


class _Counter:
    def __init__(self, name: str, on_rows: OnRows) -> None:
        self._name, self._on_rows, self._count = name, on_rows, 0

    def __call__(self, count: int) -> None:
        self._count += count
        self._on_rows(self._name, self._count)


def _budget(config: EngineConfig, shape: ModelShape, device: "torch.device", limits: Limits) -> Budget:
    free = free_host_bytes()
    if device.type == "cuda":
        import torch

        free = int(torch.cuda.mem_get_info(device)[0])
    activations = activation_bytes(
        limits.max_batch_tokens,
        shape.hidden,
        shape.widest,
        min(limits.max_running, limits.max_batch_tokens),
        shape.vocabulary,
        shape.dtype_bytes,
    )
    free -= shape.weight_bytes
    return budget_for(config, device.type, free, shape.kv_bytes_per_token, shape.weight_bytes, activations)


@dataclass(frozen=True, slots=True)
class _Place:
    """Folders for the spool of a job, which stays, and for what does not fit in memory."""

    spool: Path
    scratch: Path


@contextmanager
def _place(job: JobSpec, otherwise: Path) -> Iterator[_Place]:
    """Where a run will look for the job's rows; another folder where a run is on its way, or nothing can be written.

    The rows of a job that is done are not asked for again: they do not stay.
    """
    with ExitStack() as stack:
        output = OutputFolder(Path(job.output), Storage())
        try:
            output.create()
            stack.enter_context(output_lock(output.state, wait=False))
        except (OutputError, LockedError):
            otherwise.mkdir()
            yield _Place(otherwise / "spool", otherwise)
            return
        try:
            yield _Place(output.spool, output.scratch)
        finally:
            if output.success.exists():
                shutil.rmtree(output.spool, ignore_errors=True)


def _other_field_orders(job_file: JobFile, encoder: Encoder, scratch: Path) -> Iterator[WhatIf]:
    """What field_order: auto would compute, of jobs that have fields and do not use it."""
    for job in job_file.jobs:
        if job.fields is None or job.field_order == "auto":
            continue
        folder = scratch / f"{job.name}.auto"
        spool = prepare_spool(job, encoder, folder, lambda count: None, field_orders_of(job).orders)
        order = order_by_prefix(spool.prompt_batches(), scratch)
        wanted = wanted_rows(spool.request_ids, pa.array([], pa.binary(ID_BYTES)))
        num_tokens = order.keep(wanted[order.rows]).num_to_compute
        yield WhatIf(f"{job.name}: field_order: auto (this job alone)", num_tokens, None, None)
