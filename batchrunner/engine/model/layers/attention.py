"""The seam to transformers: its models call our attention, with packed tokens and a paged cache behind it."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.utils import logging

from batchrunner.engine.kv.paged_kv import LayerShape, PagedKV
from batchrunner.engine.kv.slot_copies import SlotCopies
from batchrunner.errors import ModelError
from batchrunner.kernels.attention_work import AttentionOptions
from batchrunner.kernels.interface import Kernels

NAME = "batchrunner"


class LayerAttention(Protocol):
    """What stands behind the attention of every layer while a forward pass runs."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions) -> Tensor:
        """query, key, value: [T, heads, head_dim]; returns [T, heads, head_dim]."""


@dataclass(slots=True)
class ShapeProbe:
    """Notes the shapes of every layer in a dry pass: the KV pool is built from what the model does, not says."""

    shapes: dict[int, LayerShape] = field(default_factory=dict)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions) -> Tensor:
        self.shapes[layer] = LayerShape(query.shape[1], key.shape[1], key.shape[2], value.shape[2], options)
        return query.new_zeros(query.shape[0], query.shape[1], value.shape[2])


@dataclass(frozen=True, slots=True)
class PagedAttention:
    """Attention of one step: the new keys and values are written first, so that requests may share them at once.

    plan: the step's work as the kernels take it. slots [T]: where each token's KV goes. copies: where it goes, too.
    logit_rows [S]: the tokens whose logits are asked for; None: all.
    """

    kernels: Kernels
    kv: PagedKV
    plan: Any
    slots: Tensor
    logit_rows: Tensor | None = None
    copies: SlotCopies | None = None

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions) -> Tensor:
        self.kernels.write_kv(key, value, self.kv.keys[layer], self.kv.values[layer], self.slots)
        self._copy(layer)
        return self.attend_written(layer, query, options)

    def rotate_and_write_kv(self, layer: int, qkv: Tensor, cos: Tensor, sin: Tensor, num_heads: int) -> Tensor:
        """See Kernels.rotate_and_write_kv."""
        k_cache, v_cache = self.kv.keys[layer], self.kv.values[layer]
        query = self.kernels.rotate_and_write_kv(qkv, cos, sin, k_cache, v_cache, self.slots, num_heads)
        self._copy(layer)
        return query

    def attend_written(self, layer: int, query: Tensor, options: AttentionOptions) -> Tensor:
        """Attention of tokens whose keys and values are in the cache already."""
        return self.kernels.attend(query, self.kv.keys[layer], self.kv.values[layer], self.plan, options)

    def _copy(self, layer: int) -> None:
        if self.copies is not None:
            for cache in (self.kv.keys[layer], self.kv.values[layer]):
                self.copies.make(cache)


_current: ContextVar[LayerAttention] = ContextVar("layer_attention")


@contextmanager
def attention_by(layer_attention: LayerAttention) -> Iterator[None]:
    """Within this context every layer's attention is computed by layer_attention."""
    token = _current.set(layer_attention)
    try:
        yield
    finally:
        _current.reset(token)


def current_attention() -> PagedAttention:
    """For layers of our own, which run in steps only."""
    attention = _current.get()
    assert isinstance(attention, PagedAttention)
    return attention


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """The function transformers calls; query [1, heads, T, dim], key and value [1, kv heads, T, dim]."""
    layer = getattr(module, "layer_idx", None)
    if not isinstance(layer, int):
        raise ModelError(f"{type(module).__name__} does not say which layer it is; this model is not supported")
    if options.get("position_bias") is not None:
        raise ModelError(f"{type(module).__name__} adds a position bias to its attention, which is not supported")
    window = options.get("sliding_window") or 0
    out = _current.get().attend(
        layer,
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        AttentionOptions(
            scale=query.shape[-1] ** -0.5 if scaling is None else float(scaling),
            window=int(window),
            softcap=float(options.get("softcap") or 0.0),
            sinks=options.get("s_aux"),
        ),
    )
    return out[None], None


def _no_mask(*args: Any, **kwargs: Any) -> None:
    """Packed tokens see what their block tables hold; a mask over the packed row would be wrong and large."""
    return


def register() -> None:
    """Make `attn_implementation="batchrunner"` known to transformers, and keep its progress bars off our output."""
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    AttentionInterface.register(NAME, _attention)
    AttentionMaskInterface.register(NAME, _no_mask)
