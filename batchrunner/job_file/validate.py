"""Check what a job file names, as far as that goes without a model and without reading rows."""

import os
from pathlib import Path
from typing import Any

from batchrunner.data.input.sources import find_inputs
from batchrunner.data.prompt.prompts import compile_templates
from batchrunner.engine.model.model_files import local_path
from batchrunner.errors import OutputError
from batchrunner.spec.job import JobFile, JobSpec


def check_job_file(job_file: JobFile) -> list[dict[str, Any]]:
    """Facts about each job. Raises JobFileError (template), DataError (input), ModelError, OutputError."""
    local_path(job_file.model)
    return [_check_job(job) for job in job_file.jobs]


def _check_job(job: JobSpec) -> dict[str, Any]:
    compile_templates(job)
    files = find_inputs(job.inputs)
    _check_output(job)
    return {
        "name": job.name,
        "num_files": len(files),
        "num_bytes": sum(file.path.stat().st_size for file in files),
        "output": job.output,
    }


def _check_output(job: JobSpec) -> None:
    """Raises OutputError if the output is no folder and cannot become one. Creates nothing."""
    output = Path(job.output)
    try:
        nearest = next(path for path in (output, *output.parents) if path.is_symlink() or path.exists())
    except OSError as error:
        raise OutputError(f"{job.name}: output {output}: {error.strerror}") from error
    if output.is_symlink():
        raise OutputError(f"{job.name}: output {output}: is a symbolic link; outputs are written to real folders only")
    if not nearest.is_dir():
        raise OutputError(f"{job.name}: output {output}: {nearest} is there and is no folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise OutputError(f"{job.name}: output {output}: the folder {nearest} is not writable")
