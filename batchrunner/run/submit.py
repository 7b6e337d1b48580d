"""Run a job file: lock its outputs, skip what is done, run the rest."""

from contextlib import ExitStack
from pathlib import Path

from batchrunner.checkpoint.storage import Storage
from batchrunner.errors import StorageError, described
from batchrunner.output.folder import OutputFolder
from batchrunner.output.lock import output_lock
from batchrunner.output.summary import JobSummary, Summary
from batchrunner.run.finished import job_digest
from batchrunner.run.progress import Progress
from batchrunner.run.shutdown import Shutdown
from batchrunner.spec.job import JobFile, JobSpec


def run_job_file(job_file: JobFile, progress: Progress, *, wait: bool = False) -> Summary:
    """Bring every job of the file to its end, going on where earlier runs stopped.

    wait: wait for outputs that another runner works on. Raises LockedError, Interrupted and the errors of errors.py.
    """
    try:
        return _run_locked(job_file, progress, wait)
    except OSError as error:  # a full disk, a folder that went away: wherever it was met
        raise StorageError(f"{described(error)}; run the same command again to go on") from error


def _run_locked(job_file: JobFile, progress: Progress, wait: bool) -> Summary:
    storage = Storage()
    digests = {job.name: job_digest(job_file, job) for job in job_file.jobs}  # before anything is created
    summaries: dict[str, JobSummary] = {}
    todo: list[JobSpec] = []
    with ExitStack() as stack:
        for job in job_file.jobs:
            folder = OutputFolder(Path(job.output), storage)
            folder.create()
            stack.enter_context(output_lock(folder.state, wait=wait))
            finished = folder.finished_summary(digests[job.name])
            if finished is not None:
                summaries[job.name] = finished
                progress.note(f"{job.name}: done already, nothing to compute")
            else:
                todo.append(job)
        if todo:
            shutdown = stack.enter_context(Shutdown())
            from batchrunner.run.runner import Runner  # torch and transformers take seconds: only when there is work

            with progress:
                summaries.update(Runner(job_file, progress, shutdown, storage).run(todo))
    return Summary(tuple(summaries[job.name] for job in job_file.jobs))
