"""Request identity: what a request is asked decides its id, and the id decides its random numbers."""

import hashlib
import json
from collections.abc import Sequence

import numpy as np

from batchrunner.spec.sampling import SamplingParams

ID_BYTES = 16
TOKEN_BYTES = 4  # of a token id in a prompt


def prompt_bytes(token_ids: Sequence[int]) -> bytes:
    """The token ids as big-endian uint32: the order of the bytes is the order of the ids.

    Ids that no vocabulary has (negative, beyond 32 bits) wrap around; the engine refuses requests with such.
    """
    return np.asarray(token_ids, dtype=np.int64).astype(">u4").tobytes()


def question_digest(token_ids: Sequence[int], sampling: SamplingParams) -> bytes:
    """Digest (ID_BYTES long) of what is asked, whoever is asked: the prompt, and the parameters that have an effect."""
    hasher = question_hasher(sampling)
    hasher.update(prompt_bytes(token_ids))
    return hasher.digest()


def question_hasher(sampling: SamplingParams) -> "hashlib.blake2b":
    """What question_digest is made with, before it was given the prompt_bytes; copy() it for each prompt."""
    effective = sampling.model_dump()
    if sampling.is_greedy:
        for name in ("temperature", "top_k", "top_p", "min_p", "seed"):
            del effective[name]
    head = json.dumps(effective, sort_keys=True).encode()
    return hashlib.blake2b(head + b"\n", digest_size=ID_BYTES)


def request_id(fingerprint: str, question: bytes, occurrence: int) -> bytes:
    """The id (ID_BYTES long) of the occurrence-th time that the model with this fingerprint is asked a question.

    Greedy requests always have occurrence 0: the same question has the same answer.
    """
    mask = request_mask(fingerprint, occurrence)
    return bytes(left ^ right for left, right in zip(question, mask, strict=True))


def request_mask(fingerprint: str, occurrence: int) -> bytes:
    """A request's id is this XOR its question's digest.

    Both are uniform and have nothing to do with each other, so that ids differ as surely as digests of all three do;
    and the ids of millions of rows take no time.
    """
    text = f"{fingerprint}\n{occurrence}"
    return hashlib.blake2b(text.encode(), digest_size=ID_BYTES, person=b"request mask").digest()


def random_key(seed: int, request_id: str, sample_index: int = 0) -> int:
    """The 128-bit key of a request's random stream."""
    text = f"{seed}/{request_id}/{sample_index}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")
