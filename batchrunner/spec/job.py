"""The job file and its parts: frozen, validated, without behaviour of their own.

Reading YAML and explaining what is wrong with it is job_file.py's work.
"""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from batchrunner.spec.engine import EngineConfig
from batchrunner.spec.types import MAX_INT, Frozen, empty_means_default

MAX_PRIORITY = 1_000_000
MAX_FIELDS = 255  # an order of fields is kept as bytes


class ColumnRef(Frozen):
    """`{column: NAME}`: the value is taken from this column, row by row."""

    column: str


class SamplingParams(Frozen):
    """How the tokens of one request are chosen and when it ends.

    temperature 0 is greedy; top_k 0, top_p 1 and min_p 0 are off. Stop strings are cut from the text, stop token ids
    are not shown in it. The random stream depends on (seed, request_id, position) and on nothing else.
    """

    max_tokens: int = Field(256, ge=1, lt=MAX_INT)
    temperature: float = Field(0.0, ge=0.0, le=100.0, allow_inf_nan=False)
    top_k: int = Field(0, ge=0, lt=MAX_INT)
    top_p: float = Field(1.0, gt=0.0, le=1.0)
    min_p: float = Field(0.0, ge=0.0, lt=1.0)
    seed: int = Field(0, ge=0, lt=MAX_INT)
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False

    @field_validator("stop", mode="before")
    @classmethod
    def _one_stop_string(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @field_validator("stop")
    @classmethod
    def _no_empty_stop_string(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if "" in value:
            raise ValueError("a stop string is empty; every text would end at once")
        return value

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0


class SamplingSpec(Frozen):
    """SamplingParams as a job file writes them: any value may name a column instead. Left out means the default."""

    max_tokens: int | ColumnRef | None = None
    temperature: float | ColumnRef | None = None
    top_k: int | ColumnRef | None = None
    top_p: float | ColumnRef | None = None
    min_p: float | ColumnRef | None = None
    seed: int | ColumnRef | None = None
    stop: str | tuple[str, ...] | ColumnRef | None = None
    stop_token_ids: tuple[int, ...] | ColumnRef | None = None
    ignore_eos: bool | ColumnRef | None = None

    @model_validator(mode="after")
    def _constants_are_valid(self) -> Self:
        SamplingParams(**self.constants())
        return self

    def constants(self) -> dict[str, Any]:
        return {name: value for name, value in self if value is not None and not isinstance(value, ColumnRef)}

    def columns(self) -> dict[str, str]:
        """Parameter name → column name, for the parameters that come from a column."""
        return {name: value.column for name, value in self if isinstance(value, ColumnRef)}


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
