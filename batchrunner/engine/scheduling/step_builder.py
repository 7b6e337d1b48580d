"""Enters the tokens of one request after the other into a step, and counts what they are."""

from batchrunner.engine.counters import Counters
from batchrunner.engine.kv.block_tables import BlockTables, PrefixMatch
from batchrunner.engine.kv.places import Place
from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.schedule import CutRequest, Schedule


class StepBuilder:
    """max_batch_tokens: most tokens of a step."""

    def __init__(self, tables: BlockTables, max_batch_tokens: int, counters: Counters) -> None:
        self._tables = tables
        self._block_size = tables.pool.block_size
        self._max_batch_tokens = max_batch_tokens
        self._counters = counters

    def num_new_tokens(self, request: Request, num_computed: int, schedule: Schedule) -> int:
        """As many as fit in the step, possibly none.

        A part of a prompt ends with a full block: one that ended inside a block could not be shared, and its siblings
        would compute their own from there on. Only a step of less than a block has no choice.
        """
        budget = self._max_batch_tokens - schedule.num_tokens
        if request.num_tokens - num_computed <= budget:
            return request.num_tokens - num_computed
        end = num_computed + budget
        aligned = end - end % self._block_size
        if aligned <= num_computed:
            return 0 if schedule.num_tokens else budget
        return aligned - num_computed

    def take(self, request: Request, match: PrefixMatch, schedule: Schedule) -> None:
        """Catch up with what is cached. Loading counts as waste, at its cost, where a preemption made it necessary."""
        num_moves = len(schedule.moves)
        self._tables.take(request, match, schedule)
        if request.num_preemptions:
            loads = [move for move in schedule.moves[num_moves:] if move.target == Place.DEVICE]
            costs = [self._tables.below.choice.relative_cost(move.source) for move in loads]
            schedule.num_wasted_tokens += self._block_size * sum(costs)

    def add(self, request: Request, num_new_tokens: int, schedule: Schedule) -> None:
        """Enter the tokens into the step, with blocks to hold them. There is room for them."""
        if request.num_computed_tokens + num_new_tokens < request.num_tokens:
            schedule.cut.append(CutRequest(request, request.num_computed_tokens + num_new_tokens))
        if not num_new_tokens:
            return
        item = schedule.add(request, num_new_tokens)
        self._tables.extend(request, item.end, schedule)
        num_found = max(0, min(item.start, request.num_prompt_tokens) - request.high_water)
        num_recomputed = max(0, min(request.high_water, item.end) - item.start)
        request.num_cached_tokens += num_found
        self._counters.num_cached_tokens += num_found
        self._counters.num_recomputed_tokens += num_recomputed
        if request.num_preemptions:  # what a policy does to a request is no lack of memory
            schedule.num_wasted_tokens += num_recomputed
        request.high_water = max(request.high_water, item.end)
        if item.samples:
            request.settled_until = len(request.block_table) * self._block_size - 1
