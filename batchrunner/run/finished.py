"""Whether a job needs to run at all, found out without torch, transformers or reading a single row."""

from pathlib import Path

from batchrunner.data.sources import find_inputs
from batchrunner.engine.models import model_paths
from batchrunner.errors import DataError
from batchrunner.run.output_folder import stat_digest
from batchrunner.spec import JobFile, JobSpec


def job_digest(job_file: JobFile, job: JobSpec) -> str:
    """Changes when anything does that could change the job's output: the job, its input files, the model.

    Raises DataError if the output lies inside the input: a second run would read the first one's answers.
    """
    for name in job.inputs:
        if Path(name).is_dir() and Path(job.output).is_relative_to(name):
            raise DataError(f"{job.name}: the output {job.output} lies in the input folder; choose another output")
    inputs = [file.path for file in find_inputs(job.inputs)]
    config = job_file.engine
    return stat_digest(
        [*inputs, *model_paths(job_file.model)], job_file.model, config.device, config.dtype, job.model_dump_json()
    )
