"""The job file and its parts: frozen, validated, without behaviour of their own.

Reading YAML and explaining what is wrong with it is job_file.py's work.
"""

import re
from fractions import Fraction
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
_MAX_INT = 2**63  # whole numbers stay below it: they are kept in 64 bits


def parse_bytes(value: Any) -> Any:
    """Turn "8GiB", "500 MB" or a whole number into bytes; "auto" stays as it is."""
    if isinstance(value, str) and value != "auto":
        match = re.fullmatch(r"\s*([0-9]{1,30}(?:\.[0-9]{1,30})?)\s*((?:[KMGT]I?)?)B?\s*", value.upper())
        if match is None:
            raise ValueError("not a size; write a number of bytes or, for example, 8GiB")
        return int(Fraction(match[1]) * _UNITS[match[2]])
    return value


def _empty_means_default(value: Any) -> Any:
    """A section whose key is there without a value is like one that is left out."""
    return {} if value is None else value


class _Frozen(BaseModel):
    # A job file's values may come from ${env:…}: no error shows them. Validators must not put them in messages either.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class ColumnRef(_Frozen):
    """`{column: NAME}`: the value is taken from this column, row by row."""

    column: str


class SamplingParams(_Frozen):
    """How the tokens of one request are chosen and when it ends.

    temperature 0 is greedy; top_k 0, top_p 1 and min_p 0 are off. Stop strings are cut from the text, stop token ids
    are not shown in it. The random stream depends on (seed, request_id, position) and on nothing else.
    """

    max_tokens: int = Field(256, ge=1, lt=_MAX_INT)
    temperature: float = Field(0.0, ge=0.0, le=100.0, allow_inf_nan=False)
    top_k: int = Field(0, ge=0, lt=_MAX_INT)
    top_p: float = Field(1.0, gt=0.0, le=1.0)
    min_p: float = Field(0.0, ge=0.0, lt=1.0)
    seed: int = Field(0, ge=0, lt=_MAX_INT)
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


class SamplingSpec(_Frozen):
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


class Message(_Frozen):
    role: str
    content: str


class JobSpec(_Frozen):
    """One job: which rows, which prompt, where the answers go."""

    name: str
    input: str | tuple[str, ...]
    output: str
    prompt: str | ColumnRef | None = None
    messages: tuple[Message, ...] | ColumnRef | None = None
    column: str = "response"
    columns: tuple[str, ...] | None = None
    sampling: Annotated[SamplingSpec, BeforeValidator(_empty_means_default)] = SamplingSpec()
    on_error: Literal["row", "stop"] = "row"

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


Auto = Literal["auto"]
PositiveInt = Annotated[int, Field(ge=1, lt=_MAX_INT)]


class EngineConfig(_Frozen):
    """How the engine runs; nothing in it but dtype and quantization changes an answer."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    quantization: Literal["int8"] | None = None
    kv_memory: Annotated[Auto | PositiveInt, BeforeValidator(parse_bytes)] = "auto"
    kv_tokens: PositiveInt | None = None
    block_size: Annotated[int, Field(ge=1, le=1024)] = 16
    max_running: Auto | PositiveInt = "auto"
    max_batch_tokens: Auto | PositiveInt = "auto"
    batching: Literal["continuous", "static"] = "continuous"
    policy: Literal["prefix", "fcfs"] = "prefix"
    prefix_caching: bool = True

    @property
    def has_fixed_pool(self) -> bool:
        return self.kv_tokens is not None or self.kv_memory != "auto"

    @model_validator(mode="after")
    def _one_pool_size(self) -> Self:
        if self.kv_tokens is not None and self.kv_memory != "auto":
            raise ValueError("kv_tokens and kv_memory both size the KV pool; give one of them")
        return self

    @model_validator(mode="after")
    def _int8_is_for_the_cpu(self) -> Self:
        if self.quantization and self.device == "cuda":
            raise ValueError("quantization: int8 is for the CPU, and device is cuda; leave one of them out")
        if self.quantization and self.dtype not in ("auto", "float32"):
            raise ValueError(f"quantization: int8 goes with dtype float32, not {self.dtype}; leave one of them out")
        return self


class JobFile(_Frozen):
    model: str
    engine: Annotated[EngineConfig, BeforeValidator(_empty_means_default)] = EngineConfig()
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
