"""Loads by name, for a simulation without a job: `--load sharegpt:1000`."""

from batchrunner.errors import UsageError
from batchrunner.simulate.load.loads import SimRow, conversations, equal, shared_prefixes, sharegpt_like

MAX_ROWS = 10_000_000
_ABOUT = {
    "equal": "32 tokens in, 128 out",
    "sharegpt": "long-tailed lengths",
    "prefixes": "instructions of 1,000 tokens for 50 rows each, 50 of their own, 50 out",
    "agents": "conversations of 50 turns; 3,000 tokens that all begin with, 1,000 of a task, 80 new and 80 out a turn",
}


def named_load(text: str) -> list[SimRow]:
    """NAME:ROWS. Raises UsageError with the names there are."""
    names = ", ".join(f"{name} ({about})" for name, about in _ABOUT.items())
    name, _, number = text.partition(":")
    num_rows = int(number) if number.isdecimal() else 0
    if name not in _ABOUT or not 0 < num_rows <= MAX_ROWS:
        raise UsageError(f"--load {text}: write NAME:ROWS, as in sharegpt:1000; known are {names}")
    if name == "equal":
        return equal(num_rows, 32, 128)
    if name == "sharegpt":
        return sharegpt_like(num_rows)
    if name == "prefixes":
        return shared_prefixes(num_rows, max(1, num_rows // 50), 1000, 50, 50)
    return agent_like(num_rows)


def agent_like(num_rows: int) -> list[SimRow]:
    """Rows are turns; rounded up to whole conversations."""
    return conversations(-(-num_rows // 50), 50, num_first=1000, num_a_turn=80, num_output=80, num_shared=3000)
