"""The planned order: requests that begin alike run next to each other."""

from batchrunner.engine.scheduling.policies.fcfs import FirstComeFirstServed


class PlannedOrder(FirstComeFirstServed):
    """Requests run as they arrive: in the depth-first order of their prefix tree (plan/prefix_order.py).

    A prefix is computed once, by its first request; after its last one it is evicted before all others.
    """
