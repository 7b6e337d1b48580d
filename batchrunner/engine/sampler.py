"""From logits to token ids.

A sampled row depends on its own logits, parameters and random key alone, so neighbours and batch size cannot change
it. The random number for output position i is the first of a Philox stream (Salmon et al., SC 2011) with the request's
key and counter i: it can be drawn again after an eviction, a restart or a change of order.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from batchrunner.engine.request import Request
from batchrunner.identity import random_key
from batchrunner.spec import SamplingParams

# Sorting a vocabulary of 49,152 takes 3 ms, finding its top 1,024 takes 0.3 ms, and they nearly always hold top_p.
TOP_P_CANDIDATES = 1024


def sample(logits: Tensor, requests: Sequence[Request]) -> list[int]:
    """Choose the next token of each request from its row of logits [S, vocabulary]."""
    token_ids: list[int] = logits.argmax(dim=-1).tolist() if len(requests) else []
    for row, request in enumerate(requests):
        sampling = request.sampling
        if not sampling.is_greedy:
            key = random_key(sampling.seed, request.request_id)
            token_ids[row] = sample_row(logits[row], sampling, uniform(key, request.num_output_tokens))
    return token_ids


def uniform(key: int, position: int) -> float:
    """The random number in [0, 1) for one output position."""
    return float(np.random.Generator(np.random.Philox(key=key, counter=position)).random())


def sample_row(logits: Tensor, sampling: SamplingParams, u: float) -> int:
    """Temperature, then top_k, top_p and min_p, each on what the one before left; u picks by the inverse CDF."""
    scaled = logits.double() / sampling.temperature
    token_ids: Tensor | None = None
    if sampling.top_k or sampling.top_p < 1.0:
        probs, token_ids = _top(scaled, sampling)
    else:
        probs = torch.softmax(scaled, dim=-1)
    if sampling.min_p:
        probs = torch.where(probs >= sampling.min_p * probs.max(), probs, 0.0)
    cdf = probs.cumsum(-1)
    index = int(torch.searchsorted(cdf, u * cdf[-1], right=True))
    # u · total can round up to the total itself; the last token with any probability is meant then.
    index = min(index, int(probs.nonzero()[-1]))
    return index if token_ids is None else int(token_ids[index])


def _top(scaled: Tensor, sampling: SamplingParams) -> tuple[Tensor, Tensor]:
    """Probabilities and token ids that top_k and top_p leave, most probable first."""
    size = scaled.shape[-1]
    if sampling.top_k:
        values, token_ids = scaled.topk(min(sampling.top_k, size))
        probs = torch.softmax(values, dim=-1)
    else:
        values, token_ids = scaled.topk(min(TOP_P_CANDIDATES, size))
        log_total = torch.logsumexp(scaled, dim=-1)
        probs = torch.exp(values - log_total)
        if probs.sum() < sampling.top_p:
            values, token_ids = scaled.sort(descending=True)
            probs = torch.exp(values - log_total)
    # A token stays while the probability before it has not reached top_p; the first one always stays.
    num_kept = max(1, int((probs.cumsum(-1) - probs < sampling.top_p).sum()))
    return probs[:num_kept], token_ids[:num_kept]
