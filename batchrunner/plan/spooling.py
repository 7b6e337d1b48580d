"""The rows of a job as requests, with their fields in the order that the job asks for."""

import os
from collections.abc import Callable
from pathlib import Path

from batchrunner.data.prompt.field_values import read_fields
from batchrunner.data.prompt.prompts import Encoder
from batchrunner.data.spool.spool import Spool, prepare_spool
from batchrunner.errors import StorageError
from batchrunner.plan.field_order import FieldOrders, choose_field_orders
from batchrunner.spec.job import JobSpec


def spool_of(job: JobSpec, encoder: Encoder, folder: Path, on_rows: Callable[[int], None]) -> Spool:
    """folder: the spool's own; what is there of it is used. on_rows is told how many rows came through.

    Raises StorageError where the folder cannot be written, and what prepare_spool and reading input raise.
    """
    orders = field_orders_of(job).orders if job.field_order == "auto" else None
    try:
        return prepare_spool(job, encoder, folder, on_rows, orders)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise StorageError(
            f"{folder}: the tokenised rows cannot be written: {reason}; see to it and run again"
        ) from error


def field_orders_of(job: JobSpec) -> FieldOrders:
    """A job with fields: a pass over its input tells which values rows have in common."""
    values = read_fields(job)
    return choose_field_orders(values.codes, values.lengths, values.name_lengths)
