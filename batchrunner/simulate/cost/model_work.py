"""A step's counts in floating-point operations and bytes of one model."""

from dataclasses import dataclass
from typing import Self

from batchrunner.engine.scheduling.step_work import StepWork
from batchrunner.simulate.cost.least_work import LeastWork
from batchrunner.simulate.cost.model_shape import ModelShape


@dataclass(frozen=True, slots=True)
class ModelWork:
    """token_flops: of a token but for the output layer, which is sample_flops. attention_flops: of a pair of tokens.

    kv_bytes: of one token. weight_bytes: of all weights that are multiplied; active_weight_bytes: of those that one
    token is multiplied by.
    """

    token_flops: float
    sample_flops: float
    attention_flops: float
    kv_bytes: int
    weight_bytes: int
    active_weight_bytes: int

    @classmethod
    def of(cls, model: ModelShape) -> Self:
        return cls(
            token_flops=2.0 * (model.num_active_parameters - model.num_output_parameters),
            sample_flops=2.0 * model.num_output_parameters,
            attention_flops=4.0 * model.num_heads * model.head_dim * model.num_layers,
            kv_bytes=model.kv_bytes_per_token,
            weight_bytes=model.dtype_bytes * (model.num_parameters - model.num_embedding_parameters),
            active_weight_bytes=model.dtype_bytes * model.num_active_parameters,
        )

    def num_flops(self, work: StepWork | LeastWork) -> float:
        linear = self.token_flops * work.num_tokens + self.sample_flops * work.num_samples
        return linear + self.attention_flops * work.num_attended

    def num_weight_bytes(self, num_tokens: int) -> int:
        """Read for a step. With experts: tokens may all choose different ones, until all are read."""
        return min(self.weight_bytes, num_tokens * self.active_weight_bytes)

    def num_kv_bytes(self, num_read: int, num_written: int) -> int:
        return self.kv_bytes * (num_read + num_written)
