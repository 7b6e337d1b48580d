"""Thrashing: requests that are preempted again and again, so that the work goes into computing the same tokens.

Answered as TCP answers a full network (additive increase, multiplicative decrease: Chiu and Jain, 1989): when too much
of a window of steps was wasted, fewer requests may run at once; while nothing is wasted, slowly more again.
"""

from batchrunner.engine.kv.swap_choice import MeasuredCosts

WINDOW = 32  # steps
TOO_MUCH = 0.25  # of the work, done again: computed, or loaded at so much of the cost
DECREASE = 0.75


class Congestion:
    """seats: how many requests may run at once, at most max_running.

    Work is counted in tokens, as many as the device could have computed of prompts in that time, if costs knows: a GPU
    decodes few tokens in the time in which it computes a prompt of many.
    """

    def __init__(self, max_running: int, costs: MeasuredCosts | None = None) -> None:
        self.seats = max_running
        self.num_thrashes = 0
        self._max_running = max_running
        self._num_steps = 0
        self._num_computed = 0
        self._num_wasted = 0.0
        self._costs = costs
        self._busy_seconds = 0.0

    def observe(self, num_computed: int, num_wasted: float, num_running: int) -> None:
        """Take in a step: tokens computed, what of them was waste, and the requests that ran."""
        self._num_steps += 1
        self._num_computed += num_computed
        self._num_wasted += num_wasted
        if self._num_steps < WINDOW:
            return
        if self._num_wasted > TOO_MUCH * self._num_possible():
            self.seats = max(1, int(DECREASE * min(self.seats, num_running)))
            self.num_thrashes += 1
        elif self.seats < self._max_running:
            self.seats = min(self._max_running, self.seats + max(1, self.seats // 16))
        self._num_steps, self._num_computed, self._num_wasted = 0, 0, 0.0

    def _num_possible(self) -> float:
        """Tokens of prompts that could have been computed in the window."""
        costs = self._costs
        if costs is None:
            return self._num_computed
        seconds, self._busy_seconds = costs.busy_seconds - self._busy_seconds, costs.busy_seconds
        if costs.tokens_per_second is None:
            return self._num_computed
        return max(self._num_computed, seconds * costs.tokens_per_second)
