"""What a step may hold, and what can never be answered."""

from dataclasses import dataclass

from batchrunner.engine.kv.block_pool import BlockPool
from batchrunner.engine.request import Request
from batchrunner.errors import RowError


@dataclass(frozen=True, slots=True)
class Limits:
    """max_running: requests at once. max_batch_tokens: tokens computed in one step."""

    max_running: int
    max_batch_tokens: int


def check_request(request: Request, pool: BlockPool) -> None:
    """Raises RowError if the request can never be answered."""
    check_sizes(request.num_prompt_tokens, request.sampling.max_tokens, request.max_total_tokens, pool)


def check_sizes(num_prompt_tokens: int, max_tokens: int, context_len: int, pool: BlockPool) -> None:
    """max_tokens: of the answer; context_len: of prompt and answer. Raises RowError if there is no room for them."""
    if num_prompt_tokens == 0:
        raise RowError("empty_prompt", "the prompt has no tokens")
    if num_prompt_tokens >= context_len:
        raise RowError(
            "prompt_too_long",
            f"the prompt has {num_prompt_tokens:,} tokens; the model's context of {context_len:,} leaves no room for "
            "an answer",
        )
    num_kv_tokens = min(num_prompt_tokens + max_tokens, context_len) - 1  # the last token's KV is never read
    if pool.num_blocks_for(num_kv_tokens) > pool.num_blocks:
        raise RowError(
            "exceeds_kv_memory",
            f"the prompt of {num_prompt_tokens:,} tokens and up to {max_tokens:,} new ones need KV memory for "
            f"{num_kv_tokens:,} tokens; the pool holds {pool.num_blocks * pool.block_size:,} (engine.kv_tokens, "
            "engine.kv_memory)",
        )
