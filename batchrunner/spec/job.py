"""The job file and its parts: frozen, validated, without behaviour of their own.

Reading YAML and explaining what is wrong with it is the work of job_file/.
"""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from batchrunner.spec.engine import EngineConfig
from batchrunner.spec.sampling import SamplingSpec
from batchrunner.spec.types import ColumnRef, Frozen, empty_means_default

MAX_PRIORITY = 1_000_000
MAX_FIELDS = 255  # an order of fields is kept as bytes


class Message(Frozen):
    role: str
    content: str


class JobSpec(Frozen):
    """One job: which rows, which prompt, where the answers go."""

    name: str
    input: str | tuple[str, ...]
    output: str
    prompt: str | ColumnRef | None = None
    messages: tuple[Message, ...] | ColumnRef | None = None
    fields: tuple[str, ...] | None = None
    field_order: Literal["given", "auto"] = "given"
    column: str = "response"
    columns: tuple[str, ...] | None = None
    sampling: Annotated[SamplingSpec, BeforeValidator(empty_means_default)] = SamplingSpec()
    on_error: Literal["row", "stop"] = "row"
    priority: Annotated[int, Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] | ColumnRef = 0

    @field_validator("name")
    @classmethod
    def _plain_name(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", value):
            raise ValueError("may have only A-Z, a-z, 0-9, '.', '_' and '-', and must begin with a letter or a digit")
        return value

    @field_validator("input")
    @classmethod
    def _some_input(cls, value: Any) -> Any:
        if value == ():
            raise ValueError("the list is empty; name at least one file, glob or folder")
        return value

    @field_validator("fields")
    @classmethod
    def _some_different_fields(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if names is None:
            return None
        if not names:
            raise ValueError("the list is empty; name at least one column, or leave fields out")
        if len(names) > MAX_FIELDS:
            raise ValueError(f"{len(names)} columns; name at most {MAX_FIELDS}")
        for index, name in enumerate(names):
            if name in names[:index]:
                raise ValueError(f"fields[{names.index(name)}] and fields[{index}] are the same column; name it once")
        return names

    @field_validator("field_order")
    @classmethod
    def _fields_to_order(cls, value: str, info: ValidationInfo) -> str:
        if value == "auto" and info.data.get("fields", ()) is None:
            raise ValueError("needs fields: the columns to order; name them and write {{ fields }} in the prompt")
        return value

    @model_validator(mode="after")
    def _one_prompt(self) -> Self:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("give either prompt or messages")
        if self.messages == ():
            raise ValueError("messages is empty")
        if self.column == "_batchrun":
            raise ValueError("column must not be _batchrun; that name holds the bookkeeping of each row")
        return self

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,) if isinstance(self.input, str) else self.input


class JobFile(Frozen):
    model: str
    engine: Annotated[EngineConfig, BeforeValidator(empty_means_default)] = EngineConfig()
    jobs: tuple[JobSpec, ...]

    @field_validator("jobs")
    @classmethod
    def _names_differ(cls, jobs: tuple[JobSpec, ...]) -> tuple[JobSpec, ...]:
        if not jobs:
            raise ValueError("the list is empty; a job file needs at least one job")
        owners: dict[str, int] = {}
        for index, job in enumerate(jobs):
            if job.name in owners:
                raise ValueError(
                    f"jobs[{owners[job.name]}] and jobs[{index}] have the same name; every job needs its own"
                )
            owners[job.name] = index
        return jobs
