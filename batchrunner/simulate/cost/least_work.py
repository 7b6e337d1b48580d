"""What no schedule can save of a load: the work behind "% of the roofline limit".

Every distinct prefix is computed once and the answer to every prompt token by token. A decode step reads the request's
context but for what it shares with others, since one read of a shared prefix may serve them all (grouped attention).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from batchrunner.simulate.load.loads import SimRow
from batchrunner.simulate.load.prompt_order import PromptOrder


@dataclass(slots=True)
class LeastWork:
    """num_attended: tokens attended to, summed over the computed ones. num_context: KV read, in tokens. num_steps: the
    weights are read at least so often."""

    num_steps: int = 0
    num_tokens: int = 0
    num_samples: int = 0
    num_attended: int = 0
    num_context: int = 0

    @classmethod
    def of(cls, rows: Sequence[SimRow], done: Sequence[int], order: PromptOrder, max_running: int) -> "LeastWork":
        """Of the rows done, the others of the load being there only to be shared with."""
        work, longest = cls(), 0
        for index in done:
            row = rows[index]
            num_prompt, num_output = len(row.token_ids), row.num_output_tokens
            num_known, num_shared = _num_known(rows, index, order), order.num_shared[_first_turn(rows, index)]
            num_known = min(num_known, num_prompt - 1)  # the last token's logits are needed
            num_end = num_prompt + num_output - 1  # the last token is never computed
            work.num_tokens += num_end - num_known
            work.num_samples += num_output
            work.num_attended += (num_end * (num_end + 1) - num_known * (num_known + 1)) // 2
            num_decodes = num_output - 1
            work.num_context += num_prompt - num_shared
            work.num_context += (num_prompt - num_shared) * num_decodes + num_decodes * (num_decodes + 1) // 2
            longest = max(longest, num_output)
        work.num_steps = max(longest, -(-work.num_samples // max_running))
        return work


def _num_known(rows: Sequence[SimRow], index: int, order: PromptOrder) -> int:
    """Tokens whose KV others have computed: those that begin like it, or its conversation so far."""
    before = rows[index].follows
    if before is None:
        return order.num_shared[index]
    return len(rows[before].token_ids) + rows[before].num_output_tokens - 1


def _first_turn(rows: Sequence[SimRow], index: int) -> int:
    """A later turn begins with all of its conversation, but there is nobody to share the reading of that with."""
    while (before := rows[index].follows) is not None:
        index = before
    return index
