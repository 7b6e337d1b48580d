"""Made-up loads: rows of token ids whose true lengths are known, the same ones for the same seed.

A token is a number that nothing reads: tokens are runs of consecutive numbers, cheap to make, and rows share a prefix
only where it is made so.
"""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from batchrunner.simulate.load.lengths import SHAREGPT_OUTPUT, lognormal

# The mean is ShareGPT's (vLLM, arXiv 2309.06180, figure 11); the spread is taken to be that of the answers.
_SHAREGPT_PROMPT = (161.0, 1.03)
_SEEDS_PER_LOAD = 2**24


@dataclass(frozen=True, slots=True)
class SimRow:
    """max_tokens: what the scheduler knows; num_output_tokens: where the answer ends, which it does not know.

    The answer's token at position i is answer_token(answer_seed, i). follows: the row of the load whose prompt and
    answer this prompt begins with; it cannot be asked before that one is done. ignore_eos: the scheduler may know that
    the answer has max_tokens. group: the job, whose answers are alike.
    """

    token_ids: list[int]
    max_tokens: int
    num_output_tokens: int
    answer_seed: int
    priority: int = 0
    arrival_seconds: float = 0.0
    follows: int | None = None
    ignore_eos: bool = False
    group: str = ""


def answer_token(seed: int, position: int) -> int:
    """Token number position of the text with this seed; fits 32 bits, and differs in the first token from any other's.

    The multiplier is Knuth's (2^32 over the golden ratio): seeds below 3e8 begin at different tokens.
    """
    return ((seed * 0x9E3779B1 & 0xFFFFFFFF) >> 2) + position


def tokens(seed: int, count: int) -> list[int]:
    first = answer_token(seed, 0)
    return list(range(first, first + count))


def equal(num_rows: int, num_prompt: int, num_output: int, seed: int = 0) -> list[SimRow]:
    """Nothing shared, all rows of one length."""
    seeds = _seeds(seed)
    return [SimRow(tokens(next(seeds), num_prompt), num_output, num_output, next(seeds)) for _ in range(num_rows)]


def sharegpt_like(num_rows: int, max_tokens: int = 2048, seed: int = 0) -> list[SimRow]:
    """Nothing shared; long-tailed prompts (161 tokens in the mean) and answers (340), cut at max_tokens."""
    seeds, rng = _seeds(seed), np.random.default_rng(seed)
    limits = np.full(num_rows, max_tokens)
    prompts = np.clip(lognormal(*_SHAREGPT_PROMPT)(limits, rng), 4, max_tokens).astype(int).tolist()
    outputs = np.clip(lognormal(*SHAREGPT_OUTPUT)(limits, rng), 1, max_tokens).astype(int).tolist()
    return [
        SimRow(tokens(next(seeds), num_prompt), max_tokens, num_output, next(seeds))
        for num_prompt, num_output in zip(prompts, outputs, strict=True)
    ]


def shared_prefixes(
    num_rows: int, num_prefixes: int, num_shared: int, num_own: int, num_output: int, seed: int = 0
) -> list[SimRow]:
    """Each row begins with one of a few prefixes, each as often as any other, in random order."""
    seeds = _seeds(seed)
    prefixes = [tokens(next(seeds), num_shared) for _ in range(num_prefixes)]
    rows = [
        SimRow([*prefixes[index % num_prefixes], *tokens(next(seeds), num_own)], num_output, num_output, next(seeds))
        for index in range(num_rows)
    ]
    random.Random(seed).shuffle(rows)  # noqa: S311
    return rows


def conversations(
    num_conversations: int,
    num_turns: int,
    num_first: int,
    num_a_turn: int,
    num_output: int,
    num_shared: int = 0,
    seed: int = 0,
) -> list[SimRow]:
    """Agent-like: a turn's prompt is the one before, its answer, and num_a_turn new tokens. Turn by turn.

    The first prompts have num_first tokens, after num_shared that are the same in all conversations.
    """
    seeds = _seeds(seed)
    shared = tokens(next(seeds), num_shared)
    rows: list[SimRow] = []
    for turn in range(num_turns):
        for _ in range(num_conversations):
            follows = len(rows) - num_conversations if turn else None
            if follows is None:
                prompt = [*shared, *tokens(next(seeds), num_first)]
            else:
                before = rows[follows]
                prompt = [*before.token_ids, *tokens(before.answer_seed, num_output), *tokens(next(seeds), num_a_turn)]
            rows.append(SimRow(prompt, num_output, num_output, next(seeds), follows=follows))
    return rows


def _seeds(seed: int) -> Iterator[int]:
    return itertools.count(seed * _SEEDS_PER_LOAD + 1)
