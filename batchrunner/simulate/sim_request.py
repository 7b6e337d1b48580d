"""A row as the scheduler sees it, with what only the simulator knows."""

from dataclasses import dataclass
from functools import lru_cache

from batchrunner.engine.request import Request
from batchrunner.simulate.load.loads import SimRow, answer_token
from batchrunner.spec.sampling import SamplingParams

END = 2**32 - 1  # no answer_token
NEVER = -1


@dataclass(eq=False, slots=True)
class SimRequest(Request):
    """row: its index. Sampled after n tokens is n + token_offset, but END where n is ends_after: the scheduler learns
    the true length when it is reached, as from a model."""

    row: int = 0
    token_offset: int = 0
    ends_after: int = NEVER

    @classmethod
    def of(cls, index: int, row: SimRow, max_position: int) -> "SimRequest":
        num_prompt = len(row.token_ids)
        request = cls(
            request_id=str(index),
            token_ids=row.token_ids.copy(),
            num_prompt_tokens=num_prompt,
            sampling=_sampling(row.max_tokens, row.ignore_eos),
            eos_token_ids=_ENDS,
            max_total_tokens=max_position,
            priority=row.priority,
            group=row.group,
            row=index,
            token_offset=answer_token(row.answer_seed, 0) - num_prompt,
        )
        if row.num_output_tokens < request.max_output_tokens:
            request.ends_after = num_prompt + row.num_output_tokens - 1
        return request


_ENDS = frozenset([END])


@lru_cache(maxsize=4096)
def _sampling(max_tokens: int, ignore_eos: bool) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, ignore_eos=ignore_eos)
