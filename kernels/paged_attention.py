"""Paged attention in plain torch: the reference every other version is measured against.

For a query token at position t of its request, over the request's keys k and values v (in blocks of the cache):

    out = softmax(scale · q·k[lo..t] (+ soft cap, + sink)) · v[lo..t]        lo = 0, or t - window + 1

The cache of a layer is [num_blocks, num_kv_heads, block_size, head_dim]; query heads share KV heads in equal groups.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from batchrunner.kernels.attention_work import AttentionOptions, AttentionWork, Segment

# Decode requests of similar length are gathered together: at most this share of a gather is padding.
MAX_PADDING = 0.25


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """Requests with one token each in the step, gathered with one index.

    rows [B]: where their tokens lie; blocks [B, max blocks], padded with block 0; context_lens [B].
    """

    rows: Tensor
    blocks: Tensor
    context_lens: Tensor


@dataclass(frozen=True, slots=True)
class Chunk:
    """A segment of several tokens, and its block table on the device."""

    segment: Segment
    blocks: Tensor


@dataclass(frozen=True, slots=True)
class PagedPlan:
    chunks: list[Chunk]
    decodes: list[DecodeGroup]

    @classmethod
    def build(cls, work: AttentionWork, device: torch.device) -> "PagedPlan":
        return cls(
            [
                Chunk(segment, torch.tensor(segment.block_table, device=device))
                for segment in work.segments
                if segment.num_tokens > 1
            ],
            group_decodes([segment for segment in work.segments if segment.num_tokens == 1], device),
        )


def write_kv(key: Tensor, value: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor) -> None:
    """Store key and value [T, num_kv_heads, head_dim] at slots [T] (block · block_size + offset) of the cache."""
    blocks, offsets = slots // k_cache.shape[2], slots % k_cache.shape[2]
    k_cache[blocks, :, offsets] = key
    v_cache[blocks, :, offsets] = value


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
        tables = [torch.tensor(segment.block_table) for segment in members]
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
    plan: PagedPlan,
    options: AttentionOptions,
) -> Tensor:
    """Attention of the packed query [T, num_heads, head_dim] over the cache; returns [T, num_heads, head_dim of v]."""
    out = query.new_empty(query.shape[0], query.shape[1], v_cache.shape[3])
    if options.head_scales is not None:
        query = query * options.head_scales[:, None]
    for chunk in plan.chunks:
        rows = slice(chunk.segment.start, chunk.segment.start + chunk.segment.num_tokens)
        out[rows] = _attend_chunk(query[rows], k_cache, v_cache, chunk, options)
    for group in plan.decodes:
        out[group.rows] = _attend_decodes(query[group.rows], k_cache, v_cache, group, options)
    return out


def _attend_chunk(query: Tensor, k_cache: Tensor, v_cache: Tensor, chunk: Chunk, options: AttentionOptions) -> Tensor:
    num_tokens, context_len = chunk.segment.num_tokens, chunk.segment.context_len
    key = k_cache[chunk.blocks].transpose(0, 1).flatten(1, 2)[:, :context_len]  # [num_kv_heads, context, head_dim]
    value = v_cache[chunk.blocks].transpose(0, 1).flatten(1, 2)[:, :context_len]
    position = torch.arange(context_len - num_tokens, context_len, device=query.device)[:, None]
    key_position = torch.arange(context_len, device=query.device)[None, :]
    visible = key_position <= position
    if options.window:
        visible &= key_position > position - options.window
    group_size = query.shape[1] // key.shape[0]
    out = _softmax_attention(
        query.transpose(0, 1)[None],
        key.repeat_interleave(group_size, 0)[None],
        value.repeat_interleave(group_size, 0)[None],
        visible[None, None],
        options,
        None if options.sinks is None else options.sinks[None, :, None, None],
    )
    return out[0].transpose(0, 1)


def _attend_decodes(
    query: Tensor, k_cache: Tensor, v_cache: Tensor, group: DecodeGroup, options: AttentionOptions
) -> Tensor:
    num_kv_heads = k_cache.shape[1]
    key = k_cache[group.blocks].transpose(1, 2).flatten(2, 3)  # [B, num_kv_heads, context, head_dim]
    value = v_cache[group.blocks].transpose(1, 2).flatten(2, 3)
    key_position = torch.arange(key.shape[2], device=query.device)[None, :]
    context_lens = group.context_lens[:, None]
    visible = key_position < context_lens
    for gathered in (key, value):  # what another request left in the rest of a block may be NaN, and 0 · NaN is too
        gathered.masked_fill_(~visible[:, None, :, None], 0)
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
