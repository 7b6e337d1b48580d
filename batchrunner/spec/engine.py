"""`engine:` of a job file: how the model is run. Nothing in it but dtype and quantization changes an answer."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from batchrunner.spec.types import Auto, Frozen, PositiveInt, empty_means_default, parse_bytes

Bytes = Annotated[PositiveInt, BeforeValidator(parse_bytes)]


class DiskTier(Frozen):
    """KV blocks in one file of size bytes in the folder path. keep: it stays after the job, for the next one."""

    path: str
    size: Bytes
    keep: bool = False


class Tiers(Frozen):
    """Where KV blocks go that leave the device and will be needed again. host: bytes of memory, 0 for none."""

    host: Annotated[Auto | Annotated[int, Field(ge=0)], BeforeValidator(parse_bytes)] = "auto"
    disk: DiskTier | None = None


class SmallModel(Frozen):
    """A model whose answers' lengths predict those of the job's model."""

    model: str


class FeedbackLevels(Frozen):
    """Of policy mlfq. slice: generated tokens on the first level, doubled on each one below. boost_every: generated
    tokens of all requests together after which everyone is on the first level again."""

    levels: Annotated[int, Field(ge=3, le=5)] = 4
    slice: PositiveInt = 32
    boost_every: PositiveInt = 200_000


class EngineConfig(Frozen):
    """Nothing in it but dtype and quantization changes an answer."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    quantization: Literal["int8"] | None = None
    kv_memory: Annotated[Auto | PositiveInt, BeforeValidator(parse_bytes)] = "auto"
    kv_tokens: PositiveInt | None = None
    block_size: Annotated[int, Field(ge=1, le=1024)] = 16
    max_running: Auto | PositiveInt = "auto"
    max_batch_tokens: Auto | PositiveInt = "auto"
    batching: Literal["continuous", "static"] = "continuous"
    schedule_every: Annotated[int, Field(ge=1, le=1000)] = 1
    predictive_release: bool = True
    policy: Literal["prefix", "fcfs", "sjf", "priority", "mlfq"] = "prefix"
    lengths: Literal["history", "signals", "max_tokens"] | SmallModel = "history"
    ageing: Annotated[float, Field(ge=0.0, le=1000.0, allow_inf_nan=False)] = 0.0
    mlfq: Annotated[FeedbackLevels, BeforeValidator(empty_means_default)] = FeedbackLevels()
    prefix_caching: bool = True
    eviction: Literal["next_use", "lru"] = "next_use"
    preemption: Literal["auto", "swap", "recompute"] = "auto"
    tiers: Annotated[Tiers, BeforeValidator(empty_means_default)] = Tiers()

    def dtype_on(self, device: str) -> str:
        """dtype on a kind of device, "cpu" or "cuda": auto is float32 on the CPU, elsewhere what the model says."""
        return "float32" if self.dtype == "auto" and device == "cpu" else self.dtype

    @property
    def has_fixed_pool(self) -> bool:
        return self.kv_tokens is not None or self.kv_memory != "auto"

    @field_validator("tiers", mode="before")
    @classmethod
    def _no_host_tier(cls, value: Any) -> Any:
        if isinstance(value, dict) and value.get("host", "") is None:
            return {**value, "host": 0}
        return value

    @model_validator(mode="after")
    def _one_pool_size(self) -> Self:
        if self.kv_tokens is not None and self.kv_memory != "auto":
            raise ValueError("kv_tokens and kv_memory both size the KV pool; give one of them")
        return self

    @model_validator(mode="after")
    def _swapping_goes_by_content(self) -> Self:
        if not self.prefix_caching and self.preemption == "swap":
            raise ValueError("preemption: swap finds blocks again by their content; it needs prefix_caching: true")
        if not self.prefix_caching and self.tiers.disk is not None:
            raise ValueError("tiers.disk finds blocks again by their content; it needs prefix_caching: true")
        if self.preemption == "swap" and self.tiers.host == 0 and self.tiers.disk is None:
            raise ValueError("preemption: swap needs a place to swap to; give tiers.host or tiers.disk")
        return self

    @model_validator(mode="after")
    def _int8_is_for_the_cpu(self) -> Self:
        if self.quantization and self.device == "cuda":
            raise ValueError("quantization: int8 is for the CPU, and device is cuda; leave one of them out")
        if self.quantization and self.dtype not in ("auto", "float32"):
            raise ValueError(f"quantization: int8 goes with dtype float32, not {self.dtype}; leave one of them out")
        return self
