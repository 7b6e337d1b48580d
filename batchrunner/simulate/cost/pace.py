"""What rows cost the two things that work beside each other: arithmetic and memory."""

from batchrunner.engine.model.speeds import Speeds
from batchrunner.plan.job_plan import Pace
from batchrunner.simulate.cost.model_shape import ModelShape


def pace_of(shape: ModelShape | None, speeds: Speeds, device_kind: str) -> Pace:
    """shape: None where the sizes of the model are not known.

    On the CPU arithmetic and memory do not run beside each other: nothing is gained by mixing rows.
    """
    if shape is None or device_kind == "cpu":
        return Pace()
    token_seconds = 2.0 * shape.num_active_parameters / speeds.flops_per_second
    return Pace(token_seconds, shape.kv_bytes_per_token / speeds.bytes_per_second)
