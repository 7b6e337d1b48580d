"""Paged attention in plain torch: the reference every other version is measured against.

For a query token at position t of its request, over the request's keys k and values v (in blocks of the cache):

    out = softmax(scale · q·k[lo..t] (+ soft cap, + sink)) · v[lo..t]        lo = 0, or t - window + 1

The cache of a layer is [num_blocks, block_size, num_kv_heads, head_dim]; query heads share KV heads in equal groups.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

# Decode requests of similar length are gathered together: at most this share of a gather is padding.
MAX_PADDING = 0.25


@dataclass(frozen=True, slots=True)
class Segment:
    """The tokens of one request in a step: rows [start, start + num_tokens) of the packed tensors.

    context_len counts the request's tokens up to and including its last one in this step.
    """

    start: int
    num_tokens: int
    context_len: int
    block_table: Tensor  # [num_blocks of the context], int64


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """Requests with one token each in the step, gathered with one index.

    rows [B]: where their tokens lie; blocks [B, max blocks], padded with block 0; context_lens [B].
    """

    rows: Tensor
    blocks: Tensor
    context_lens: Tensor


@dataclass(frozen=True, slots=True)
class AttentionOptions:
    """What a model family asks of attention beyond softmax: 0 means off."""

    scale: float
    window: int = 0
    softcap: float = 0.0
    sinks: Tensor | None = None  # [num_heads]: a logit that takes probability and gives no value


def write_kv(key: Tensor, value: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor) -> None:
    """Store key and value [T, num_kv_heads, head_dim] at slots [T] (block · block_size + offset) of the cache."""
    k_cache.view(-1, *k_cache.shape[2:]).index_copy_(0, slots, key)
    v_cache.view(-1, *v_cache.shape[2:]).index_copy_(0, slots, value)


def group_decodes(segments: list[Segment], device: torch.device) -> list[DecodeGroup]:
    """Sort one-token segments by context length and cut where padding would exceed MAX_PADDING."""
    ordered = sorted(segments, key=lambda segment: segment.context_len)
    groups: list[DecodeGroup] = []
    begin = 0
    for end in range(1, len(ordered) + 1):
        if end < len(ordered):
            longest = len(ordered[end].block_table)
            total = sum(len(segment.block_table) for segment in ordered[begin : end + 1])
            if total >= (1 - MAX_PADDING) * longest * (end + 1 - begin):
                continue
        members = ordered[begin:end]
        tables = [segment.block_table for segment in members]
        groups.append(
            DecodeGroup(
                torch.tensor([segment.start for segment in members], device=device),
                torch.nn.utils.rnn.pad_sequence(tables, batch_first=True).to(device),
                torch.tensor([segment.context_len for segment in members], device=device),
            )
        )
        begin = end
    return groups


def paged_attention(
    query: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    chunks: list[Segment],
    decodes: list[DecodeGroup],
    options: AttentionOptions,
) -> Tensor:
    """Attention of the packed query [T, num_heads, head_dim] over the cache; returns [T, num_heads, head_dim of v]."""
    out = query.new_empty(query.shape[0], query.shape[1], v_cache.shape[3])
    for segment in chunks:
        rows = slice(segment.start, segment.start + segment.num_tokens)
        out[rows] = _attend_chunk(query[rows], k_cache, v_cache, segment, options)
    for group in decodes:
        out[group.rows] = _attend_decodes(query[group.rows], k_cache, v_cache, group, options)
    return out


def _attend_chunk(
    query: Tensor, k_cache: Tensor, v_cache: Tensor, segment: Segment, options: AttentionOptions
) -> Tensor:
    num_tokens, context_len = segment.num_tokens, segment.context_len
    key = k_cache[segment.block_table].flatten(0, 1)[:context_len]
    value = v_cache[segment.block_table].flatten(0, 1)[:context_len]
    position = torch.arange(context_len - num_tokens, context_len, device=query.device)[:, None]
    key_position = torch.arange(context_len, device=query.device)[None, :]
    visible = key_position <= position
    if options.window:
        visible &= key_position > position - options.window
    group_size = query.shape[1] // key.shape[1]
    out = _softmax_attention(
        query.transpose(0, 1)[None],
        key.transpose(0, 1).repeat_interleave(group_size, 0)[None],
        value.transpose(0, 1).repeat_interleave(group_size, 0)[None],
        visible[None, None],
        options,
        None if options.sinks is None else options.sinks[None, :, None, None],
    )
    return out[0].transpose(0, 1)


def _attend_decodes(
    query: Tensor, k_cache: Tensor, v_cache: Tensor, group: DecodeGroup, options: AttentionOptions
) -> Tensor:
    num_kv_heads = k_cache.shape[2]
    key = k_cache[group.blocks].flatten(1, 2).transpose(1, 2)  # [B, num_kv_heads, context, head_dim]
    value = v_cache[group.blocks].flatten(1, 2).transpose(1, 2)
    key_position = torch.arange(key.shape[2], device=query.device)[None, :]
    context_lens = group.context_lens[:, None]
    visible = key_position < context_lens
    if options.window:
        visible &= key_position >= context_lens - options.window
    # The query heads that share a KV head stand as rows of one small matrix: no KV is repeated.
    packed = query.view(query.shape[0], num_kv_heads, -1, query.shape[2])
    sinks = None if options.sinks is None else options.sinks.view(num_kv_heads, -1)[None, :, :, None]
    out = _softmax_attention(packed, key, value, visible[:, None, None], options, sinks)
    return out.flatten(1, 2)


def _softmax_attention(
    query: Tensor, key: Tensor, value: Tensor, visible: Tensor, options: AttentionOptions, sinks: Tensor | None
) -> Tensor:
    """query [B, H, M, D], key and value [B, H, N, D], visible broadcast to [B, H, M, N], sinks to [B, H, M, 1]."""
    if not options.softcap and sinks is None:
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=visible, scale=options.scale
        )
    scores = query.float() @ key.float().transpose(-1, -2) * options.scale
    if options.softcap:
        scores = torch.tanh(scores / options.softcap) * options.softcap
    scores = scores.masked_fill(~visible, float("-inf"))
    if sinks is not None:
        scores = torch.cat([scores, sinks.float().expand(*scores.shape[:-1], 1)], dim=-1)
    weights = torch.softmax(scores, dim=-1)[..., : key.shape[2]]
    return (weights @ value.float()).to(value.dtype)
