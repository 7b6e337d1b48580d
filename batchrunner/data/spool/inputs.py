"""What a spool is made from: as long as it is the same, the rows need not be rendered and tokenised again."""

import hashlib
import json
from dataclasses import dataclass

import jinja2
import numpy as np
import numpy.typing as npt

from batchrunner.data.input.input_columns import FileStamp
from batchrunner.data.input.sources import InputFile, find_inputs
from batchrunner.spec.job import JobSpec

FieldOrders = npt.NDArray[np.uint8]  # [num_rows, num_fields]

_FORMAT = 2  # raise it when rows are rendered, tokenised or written otherwise
_IN_THE_ROWS = {"prompt", "messages", "fields", "sampling", "priority", "on_error"}
_IN_THE_COLUMNS = {"column", "columns"}


@dataclass(frozen=True, slots=True)
class SpoolInputs:
    """The files of a job as they are now, and digests of all that its spooled rows, and its columns, depend on."""

    files: tuple[InputFile, ...]
    stamps: tuple[FileStamp, ...]
    rows_digest: str
    columns_digest: str

    @classmethod
    def of(cls, job: JobSpec, encoder_identity: str, field_orders: FieldOrders | None) -> "SpoolInputs":
        """Raises DataError for inputs that are missing."""
        files = tuple(find_inputs(job.inputs))
        status = [file.path.stat() for file in files]
        stamps = tuple(FileStamp(stat.st_size, stat.st_mtime_ns) for stat in status)
        about_files = [
            [str(file.path.absolute()), file.format, stamp.num_bytes, stamp.mtime_ns]
            for file, stamp in zip(files, stamps, strict=True)
        ]
        orders = [] if field_orders is None else [field_orders.shape, _sha256(field_orders.tobytes())]
        asked = job.model_dump(mode="json", include=_IN_THE_ROWS)
        rows = _digest(_FORMAT, jinja2.__version__, encoder_identity, asked, about_files, orders)
        return cls(files, stamps, rows, _digest(rows, job.model_dump(mode="json", include=_IN_THE_COLUMNS)))


def _digest(*values: object) -> str:
    return _sha256(json.dumps(values, sort_keys=True).encode())


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
