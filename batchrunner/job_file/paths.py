"""The paths of a job file: made absolute, and outputs kept apart."""

import glob
import os
import re
from pathlib import Path
from typing import Any

from batchrunner.errors import JobFileError
from batchrunner.job_file.explain import Place, line
from batchrunner.spec.engine import EngineConfig, SmallModel
from batchrunner.spec.job import JobFile, JobSpec

MAX_NAME_BYTES = 255  # of one file or folder, on every common file system
MAX_PATH_BYTES = 4095
_REMOTE = re.compile(r"^[a-z][a-z0-9+.-]*://")


class JobPaths:
    """Makes the paths of one job file absolute.

    base is the folder relative paths are taken from. document and label are for messages, which show a path as the
    file has it and never what ${env:…} was filled with.
    """

    def __init__(self, document: dict[str, Any], base: Path, label: str) -> None:
        self._document = document
        self._base = base
        self._label = label

    def resolve(self, job_file: JobFile) -> JobFile:
        """The job file with absolute paths. Raises JobFileError for paths that cannot be, and for shared outputs."""
        jobs = tuple(self._resolve_job(job, index) for index, job in enumerate(job_file.jobs))
        self._check_outputs([job.output for job in jobs])
        model, engine = self._model(job_file.model, ("model",)), self._resolve_engine(job_file.engine)
        return job_file.model_copy(update={"jobs": jobs, "model": model, "engine": engine})

    def _model(self, model: str, place: Place) -> str:
        if model.startswith((".", "~", "/")) or _exists(self._base / model):
            return self._absolute(model, place, self._base)
        return model

    def _resolve_engine(self, engine: EngineConfig) -> EngineConfig:
        update: dict[str, Any] = {}
        if isinstance(engine.lengths, SmallModel):
            model = self._model(engine.lengths.model, ("engine", "lengths", "model"))
            update["lengths"] = engine.lengths.model_copy(update={"model": model})
        if engine.tiers.disk is not None:
            path = self._absolute(engine.tiers.disk.path, ("engine", "tiers", "disk", "path"), self._base)
            disk = engine.tiers.disk.model_copy(update={"path": path})
            update["tiers"] = engine.tiers.model_copy(update={"disk": disk})
        return engine.model_copy(update=update)

    def _resolve_job(self, job: JobSpec, index: int) -> JobSpec:
        place: Place = ("jobs", index, "input")
        places = [place] if isinstance(job.input, str) else [(*place, number) for number in range(len(job.inputs))]
        inputs = tuple(map(self._input, job.inputs, places))
        if _REMOTE.match(job.output):
            raise self._error(("jobs", index, "output"), "remote outputs are not supported; give a folder")
        output = self._absolute(job.output, ("jobs", index, "output"), self._base)
        return job.model_copy(update={"input": inputs, "output": output})

    def _input(self, value: str, place: Place) -> str:
        if _REMOTE.match(value):
            return value
        path = self._absolute(value, place, self._base)
        if _exists(Path(path)):
            return path
        # Only what the user wrote is a glob: the folder of the job file may have brackets in its name.
        return self._absolute(value, place, Path(glob.escape(str(self._base))))

    def _absolute(self, value: str, place: Place, base: Path) -> str:
        if not value.strip() or "\0" in value:
            raise self._error(place, "is no path; it is empty or has a zero byte")
        try:
            path = os.path.normpath(base / Path(value).expanduser())
        except RuntimeError:
            raise self._error(place, "the home folder of this user is not known") from None
        if len(os.fsencode(path)) > MAX_PATH_BYTES:
            raise self._error(place, f"is longer than a path can be ({MAX_PATH_BYTES:,} bytes)")
        if any(len(os.fsencode(part)) > MAX_NAME_BYTES for part in Path(path).parts):
            raise self._error(place, f"has a name longer than a file's can be ({MAX_NAME_BYTES} bytes)")
        return path

    def _check_outputs(self, outputs: list[str]) -> None:
        """Refuse outputs that are one folder, or lie in another one: the jobs would write over each other."""
        base = _real(self._base)
        owners: dict[Path, int] = {}
        for index, output in enumerate(outputs):
            folder = _real(Path(output))
            if folder == base:
                raise self._error(
                    ("jobs", index, "output"), "is the folder of the job file; give it a folder of its own"
                )
            if folder in owners:
                other = owners[folder]
                raise self._error(
                    ("jobs", index, "output"), f"is the output of jobs[{other}] too; every job needs its own"
                )
            owners[folder] = index
        for folder, index in owners.items():
            for parent in folder.parents:
                if parent in owners:
                    message = f"lies in the output of jobs[{owners[parent]}]; every job needs its own"
                    raise self._error(("jobs", index, "output"), message)

    def _error(self, place: Place, message: str) -> JobFileError:
        value: Any = self._document
        for step in place:
            value = value[step]
        return JobFileError(line(self._label, place, value, message))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long, or with a zero byte
        return False


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))
