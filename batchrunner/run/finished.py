"""Whether a job needs to run at all, found out without torch, transformers or reading a single row."""

from pathlib import Path

from batchrunner.data.input.sources import find_inputs
from batchrunner.engine.model.model_files import model_paths
from batchrunner.errors import DataError
from batchrunner.output.folder import stat_digest
from batchrunner.spec.job import JobFile, JobSpec


def job_digest(job_file: JobFile, job: JobSpec) -> str:
    """Changes when anything does that could change the job's output: the job, its input files, the model, the engine.

    Raises DataError if input and output share a folder: a run would read or replace what another one wrote.
    """
    output = Path(job.output).resolve()
    for name in job.inputs:
        if Path(name).is_dir() and output.is_relative_to(Path(name).resolve()):
            raise DataError(f"{job.name}: the output {job.output} lies in the input folder; choose another output")
    inputs = [file.path for file in find_inputs(job.inputs)]
    for path in inputs:
        if path.resolve().is_relative_to(output):
            raise DataError(f"{job.name}: the input {path} lies in the output folder; choose another output")
    engine = job_file.engine.model_dump_json()
    return stat_digest([*inputs, *model_paths(job_file.model)], job_file.model, engine, job.model_dump_json())
