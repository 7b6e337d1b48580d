"""Seeded workloads of token ids: what a table of rows looks like to the engine."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from batchrunner.spec.sampling import SamplingParams


@dataclass(frozen=True, slots=True)
class WorkRow:
    token_ids: list[int]
    max_tokens: int

    @property
    def sampling(self) -> SamplingParams:
        return SamplingParams(temperature=0, max_tokens=self.max_tokens, ignore_eos=True)


class Workloads:
    """Token ids from 3 up to the vocabulary's size; prompts and answers together at most max_tokens long."""

    def __init__(self, vocabulary: int, max_tokens: int, seed: int = 0) -> None:
        self._vocabulary = vocabulary
        self._max_tokens = max_tokens
        self._rng = random.Random(seed)  # noqa: S311

    def flat(self, num_rows: int, num_prompt: int = 36, num_output: int = 64) -> list[WorkRow]:
        """Nothing shared, all rows of one length."""
        return [self._row([], num_prompt, num_output) for _ in range(num_rows)]

    def mixed(self, num_rows: int) -> list[WorkRow]:
        """Nothing shared; prompt and output lengths are log-normal, as people's are."""
        lengths = [
            (int(self._rng.lognormvariate(4.0, 1.0)), int(self._rng.lognormvariate(3.6, 0.9))) for _ in range(num_rows)
        ]
        return [self._row([], max(4, min(600, prompt)), max(4, min(300, output))) for prompt, output in lengths]

    def annotate(
        self, num_rows: int, num_instructions: int = 1, num_shared: int = 404, num_own: int = 62, num_output: int = 24
    ) -> list[WorkRow]:
        """An instruction for each row, one of a few, in random order; a text of its own, a short answer."""
        room = max(0, self._max_tokens - num_own - num_output)
        instructions = [self._tokens(min(num_shared, room)) for _ in range(num_instructions)]
        rows = [self._row(instructions[index % num_instructions], num_own, num_output) for index in range(num_rows)]
        self._rng.shuffle(rows)
        return rows

    def _row(self, beginning: Sequence[int], num_own: int, num_output: int) -> WorkRow:
        room = self._max_tokens - len(beginning)
        num_output = max(1, min(num_output, room // 2))
        return WorkRow([*beginning, *self._tokens(max(1, min(num_own, room - num_output)))], num_output)

    def _tokens(self, count: int) -> list[int]:
        return [self._rng.randrange(3, self._vocabulary) for _ in range(count)]
