"""The rows of a job as requests, with their fields in the order that the job asks for."""

from collections.abc import Callable
from pathlib import Path

from batchrunner.data.field_values import read_fields
from batchrunner.data.prompts import Encoder
from batchrunner.data.spool import Spool, prepare_spool
from batchrunner.plan.field_order import FieldOrders, choose_field_orders
from batchrunner.spec import JobSpec


def spool_of(job: JobSpec, encoder: Encoder, folder: Path, on_rows: Callable[[int], None]) -> Spool:
    """folder: the spool's own; what is there of it is used. on_rows is told how many rows came through.

    Raises what prepare_spool and reading input raise.
    """
    orders = field_orders_of(job).orders if job.field_order == "auto" else None
    return prepare_spool(job, encoder, folder, on_rows, orders)


def field_orders_of(job: JobSpec) -> FieldOrders:
    """A job with fields: a pass over its input tells which values rows have in common."""
    values = read_fields(job)
    return choose_field_orders(values.codes, values.lengths, values.name_lengths)
