"""Seeded workloads of token ids: what a table of rows looks like to the engine."""

import random
from dataclasses import dataclass

from batchrunner import SamplingParams


@dataclass(frozen=True)
class WorkRow:
    token_ids: list[int]
    max_tokens: int

    @property
    def sampling(self) -> SamplingParams:
        return SamplingParams(temperature=0, max_tokens=self.max_tokens, ignore_eos=True)


def mixed(num_rows: int = 128, seed: int = 1, vocabulary: int = 40_000) -> list[WorkRow]:
    """Nothing shared; prompt and output lengths are log-normal, as people's are."""
    rng = random.Random(seed)
    rows = []
    for _ in range(num_rows):
        num_prompt = max(4, min(600, int(rng.lognormvariate(4.0, 1.0))))
        max_tokens = max(4, min(300, int(rng.lognormvariate(3.6, 0.9))))
        rows.append(WorkRow([rng.randrange(3, vocabulary) for _ in range(num_prompt)], max_tokens))
    return rows


def annotate(num_rows: int = 256, num_shared: int = 404, num_own: int = 62, seed: int = 0) -> list[WorkRow]:
    """One instruction for all rows, a text of its own for each, a short answer."""
    rng = random.Random(seed)
    shared = [rng.randrange(3, 40_000) for _ in range(num_shared)]
    return [WorkRow([*shared, *(rng.randrange(3, 40_000) for _ in range(num_own))], 24) for _ in range(num_rows)]
