"""Check what a job file names, as far as that goes without a model and without reading rows."""

import os
from pathlib import Path
from typing import Any

from batchrunner.data.prompts import compile_templates
from batchrunner.data.sources import find_inputs
from batchrunner.engine.models import local_path
from batchrunner.errors import OutputError
from batchrunner.spec import JobFile, JobSpec


def check_job_file(job_file: JobFile) -> list[dict[str, Any]]:
    """Facts about each job. Raises JobFileError (template), DataError (input), ModelError, OutputError."""
    local_path(job_file.model)
    return [_check_job(job) for job in job_file.jobs]


def _check_job(job: JobSpec) -> dict[str, Any]:
    compile_templates(job)
    files = find_inputs(job.inputs)
    parent = next(path for path in Path(job.output).parents if path.exists())
    if not os.access(parent, os.W_OK):
        raise OutputError(f"{job.name}: output {job.output}: the folder {parent} is not writable")
    return {
        "name": job.name,
        "num_files": len(files),
        "num_bytes": sum(file.path.stat().st_size for file in files),
        "output": job.output,
    }
