"""Request identity: what a request is asked decides its id, and the id decides its random numbers."""

import hashlib
import json
from array import array
from collections.abc import Sequence

from batchrunner.spec import SamplingParams

ID_BYTES = 16


def request_digest(model_fingerprint: str, token_ids: Sequence[int], sampling: SamplingParams) -> bytes:
    """Digest (ID_BYTES long) of everything an answer depends on: model, prompt, parameters that have an effect."""
    effective = sampling.model_dump()
    if sampling.is_greedy:
        for name in ("temperature", "top_k", "top_p", "min_p", "seed"):
            del effective[name]
    head = json.dumps([model_fingerprint, effective], sort_keys=True).encode()
    digest = hashlib.blake2b(head, digest_size=ID_BYTES)
    digest.update(array("q", token_ids).tobytes())
    return digest.digest()


def with_occurrence(digest: bytes, occurrence: int) -> bytes:
    """The digest of the occurrence-th identical request; the first one's is the digest itself.

    Greedy requests always have occurrence 0: the same question has the same answer.
    """
    if occurrence == 0:
        return digest
    return hashlib.blake2b(digest + occurrence.to_bytes(8, "little"), digest_size=ID_BYTES).digest()


def random_key(seed: int, request_id: str, sample_index: int = 0) -> int:
    """The 128-bit key of a request's random stream."""
    text = f"{seed}/{request_id}/{sample_index}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")
