"""`sampling:` of a job file, and of a request: how its tokens are chosen and when it ends."""

from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from batchrunner.spec.types import MAX_INT, ColumnRef, Frozen


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
