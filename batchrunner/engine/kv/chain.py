"""What a block of KV is known by, wherever it lies.

A block's key is the SHA-256 of its parent's key and its own token ids, so that a key stands for the whole prefix
(after vLLM's automatic prefix caching).
"""

import hashlib
from array import array

from batchrunner.engine.request import Request

ROOT_KEY = hashlib.sha256(b"batchrunner").digest()
KEY_BYTES = len(ROOT_KEY)


def block_key(parent_key: bytes, token_ids: list[int]) -> bytes:
    return hashlib.sha256(parent_key + array("I", token_ids).tobytes()).digest()


def block_keys(request: Request, block_size: int) -> list[bytes]:
    """The keys of all full blocks of the request's tokens so far; computed once and kept with the request."""
    keys, token_ids = request.block_keys, request.token_ids
    for start in range(len(keys) * block_size, len(token_ids) - block_size + 1, block_size):
        keys.append(block_key(keys[-1] if keys else ROOT_KEY, token_ids[start : start + block_size]))
    return keys
