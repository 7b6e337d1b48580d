"""The order in which simulated rows are asked, as a run of the engine's jobs would plan it."""

from collections.abc import Sequence

import numpy as np

from batchrunner.engine.scheduling.limits import Limits
from batchrunner.plan.job_plan import Room, Rows, plan_job
from batchrunner.plan.prefix_order import order_in_memory
from batchrunner.simulate.cost.device import Device
from batchrunner.simulate.cost.model_shape import ModelShape
from batchrunner.simulate.cost.pace import pace_of
from batchrunner.simulate.cost.sizes import Sizes, device_kind
from batchrunner.simulate.load.loads import SimRow
from batchrunner.spec.engine import EngineConfig


def planned_queue(
    rows: Sequence[SimRow], config: EngineConfig, shape: ModelShape, device: Device, limits: Limits, sizes: Sizes
) -> list[int]:
    """Job by job; within a job by prefix if the policy says so, else in the order of the input.

    Rows that come by and by, or follow others, are planned by prefix alone.
    """
    jobs: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        jobs.setdefault(row.group, []).append(index)
    if config.policy != "prefix":
        return [index for indexes in jobs.values() for index in indexes]
    are_there = not any(row.follows is not None or row.arrival_seconds for row in rows)
    pace = pace_of(shape, device.speeds, device_kind(device))
    room = Room(limits.max_running, sizes.pool * config.block_size)
    queue = []
    for group, indexes in jobs.items():
        job = [rows[index] for index in indexes]
        order = order_in_memory([row.token_ids for row in job])
        order = order if config.prefix_caching else order.unshared()
        places = order.rows
        if are_there:
            places = plan_job(order, _rows(job, shape.max_position), config.policy, group, {}, pace, room).rows
        queue += [indexes[place] for place in places.tolist()]
    return queue


def _rows(job: Sequence[SimRow], max_position: int) -> Rows:
    return Rows.within(
        max_position,
        num_prompt=np.array([len(row.token_ids) for row in job], dtype=np.int64),
        max_tokens=np.array([row.max_tokens for row in job], dtype=np.int64),
        is_fixed=np.array([row.ignore_eos for row in job], dtype=np.bool_),
        priorities=np.array([row.priority for row in job], dtype=np.int64),
    )
