"""What a step may hold, and what can never be answered."""

from dataclasses import dataclass

from batchrunner.engine.block_pool import BlockPool
from batchrunner.engine.request import Request
from batchrunner.errors import RowError


@dataclass(frozen=True, slots=True)
class Limits:
    """max_running: requests at once. max_batch_tokens: tokens computed in one step."""

    max_running: int
    max_batch_tokens: int


def check_request(request: Request, pool: BlockPool) -> None:
    """Raises RowError if the request can never be answered."""
    if request.num_prompt_tokens == 0:
        raise RowError("empty_prompt", "the prompt has no tokens")
    if request.num_prompt_tokens >= request.max_total_tokens:
        raise RowError(
            "prompt_too_long",
            f"the prompt has {request.num_prompt_tokens:,} tokens; the model's context of "
            f"{request.max_total_tokens:,} leaves no room for an answer",
        )
    if pool.num_blocks_for(request.max_kv_tokens) > pool.num_blocks:
        raise RowError(
            "exceeds_kv_memory",
            f"the prompt of {request.num_prompt_tokens:,} tokens and up to {request.sampling.max_tokens:,} new "
            f"ones need KV memory for {request.max_kv_tokens:,} tokens; the pool holds "
            f"{pool.num_blocks * pool.block_size:,} (engine.kv_tokens, engine.kv_memory)",
        )
