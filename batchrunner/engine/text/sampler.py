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
from batchrunner.kernels.interface import Kernels, SamplingKernels
from batchrunner.kernels.sampling_work import SamplingWork
from batchrunner.spec.sampling import SamplingParams

# Sorting a vocabulary of 49,152 takes 3 ms, finding its top 1,024 takes 0.3 ms, and they nearly always hold top_p.
TOP_P_CANDIDATES = 1024


def sample(logits: Tensor, requests: Sequence[Request], kernels: Kernels | None = None) -> list[int]:
    """Choose the next token of each request from its row of logits [S, vocabulary].

    Kernels that sample do it for all rows at once; everything else is done here.
    """
    if not requests:
        return []
    if isinstance(kernels, SamplingKernels):
        chosen: list[int] = kernels.sample(logits, sampling_work(requests)).tolist()
        return chosen
    token_ids: list[int] = logits.argmax(dim=-1).tolist()
    for row, request in enumerate(requests):
        if not request.sampling.is_greedy:
            token_ids[row] = draw(logits[row], request)
    return token_ids


def sampling_work(requests: Sequence[Request]) -> SamplingWork:
    """The parameters of all rows; what is greedy needs no key."""
    params = [request.sampling for request in requests]
    keys = [0 if request.sampling.is_greedy else _key(request) for request in requests]
    return SamplingWork(
        np.array([each.temperature for each in params], dtype=np.float64),
        np.array([each.top_k for each in params], dtype=np.int64),
        np.array([each.top_p for each in params], dtype=np.float64),
        np.array([each.min_p for each in params], dtype=np.float64),
        np.array([(key & (1 << 64) - 1, key >> 64) for key in keys], dtype=np.uint64),
        np.array([request.num_output_tokens for request in requests], dtype=np.int64),
    )


def draw(logits: Tensor, request: Request) -> int:
    """The next token of a request that is not greedy, from its row of logits."""
    return sample_row(logits, request.sampling, uniform(_key(request), request.num_output_tokens))


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


def _key(request: Request) -> int:
    return random_key(request.sampling.seed, request.request_id)


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
