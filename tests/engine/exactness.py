"""Compare the engine's greedy tokens with transformers' own, one prompt at a time."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from batchrunner import SamplingParams
from batchrunner.engine.request import Completion

TIE = 1e-4  # logits this close are a tie: a matrix product of another shape may round it the other way


@dataclass(frozen=True)
class Case:
    token_ids: list[int]
    max_tokens: int

    @property
    def sampling(self) -> SamplingParams:
        return SamplingParams(temperature=0, max_tokens=self.max_tokens)


@dataclass(frozen=True)
class Difference:
    """Where an answer leaves the reference, and how far transformers' logits of the two tokens lie apart there."""

    case: Case
    position: int
    gap: float


def mixed_cases(num_cases: int, vocabulary: int, max_prompt: int, max_new: int, seed: int = 0) -> list[Case]:
    """Prompts that share beginnings of several lengths, in random order; a few are equal, a few have one token."""
    rng = random.Random(seed)
    stems: list[list[int]] = [[]]
    for _ in range(12):
        stem = rng.choice(stems)
        stems.append(stem + [rng.randrange(3, vocabulary) for _ in range(rng.randrange(1, max_prompt // 3))])
    cases = []
    for index in range(num_cases):
        own = [rng.randrange(3, vocabulary) for _ in range(rng.choice([1, 2, 5, max_prompt // 3]))]
        prompt = (rng.choice(stems) + own)[:max_prompt] if index % 10 else cases[-1].token_ids if cases else own
        cases.append(Case(prompt, rng.randrange(1, max_new + 1)))
    return cases


class Reference:
    """transformers' generate on the same weights."""

    def __init__(self, folder: Path) -> None:
        self.model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    @torch.inference_mode()
    def generate(self, case: Case) -> list[int]:
        inputs = torch.tensor([case.token_ids])
        mask = torch.ones_like(inputs)
        output = self.model.generate(
            inputs, attention_mask=mask, max_new_tokens=case.max_tokens, do_sample=False, pad_token_id=0
        )
        return output[0, len(case.token_ids) :].tolist()

    @torch.inference_mode()
    def logits_after(self, token_ids: Sequence[int]) -> torch.Tensor:
        return self.model(torch.tensor([list(token_ids)])).logits[0, -1]

    def difference(self, case: Case, expected: Sequence[int], got: Sequence[int]) -> Difference | None:
        if list(expected) == list(got):
            return None
        position = next((i for i, (a, b) in enumerate(zip(expected, got, strict=False)) if a != b), None)
        if position is None:  # one is a beginning of the other
            return Difference(case, min(len(expected), len(got)), float("inf"))
        logits = self.logits_after([*case.token_ids, *expected[:position]])
        return Difference(case, position, abs(float(logits[expected[position]] - logits[got[position]])))


def differences(
    reference: Reference, cases: Sequence[Case], expected: Sequence[Sequence[int]], got: Sequence[Completion]
) -> list[Difference]:
    found = []
    for case, tokens, completion in zip(cases, expected, got, strict=True):
        assert completion.error is None, completion.error
        difference = reference.difference(case, tokens, completion.token_ids)
        if difference is not None:
            found.append(difference)
    return found
