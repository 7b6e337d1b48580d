"""Some rows as a record batch of the spool.

digest       16 bytes: identity.question_digest of the prompt and the parameters
prompt       the token ids as big-endian uint32, so that the order of the bytes is the order of the ids
num_tokens   of the prompt
sampling     JSON where a row's parameters differ from the job's own; null otherwise
max_tokens, ignore_eos, is_greedy, priority   of the parameters, for those who look at all rows at once
error_type, error   set for a row that cannot be asked; all else is null there
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from batchrunner.data.prompt.prompts import Prompt
from batchrunner.identity import ID_BYTES, TOKEN_BYTES, question_hasher
from batchrunner.spec.sampling import SamplingParams

SCHEMA = pa.schema(
    [
        ("digest", pa.binary(ID_BYTES)),
        ("prompt", pa.large_binary()),
        ("num_tokens", pa.int64()),
        ("sampling", pa.string()),
        ("max_tokens", pa.int64()),
        ("ignore_eos", pa.bool_()),
        ("is_greedy", pa.bool_()),
        ("priority", pa.int64()),
        ("error_type", pa.string()),
        ("error", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class BrokenRow:
    """A row that cannot be asked, and why."""

    error_type: str
    error: str


def record_batch(
    rows: Sequence[Prompt | BrokenRow], token_ids: Sequence[Sequence[int]], default: SamplingParams
) -> pa.RecordBatch:
    """token_ids: of the rows that can be asked. default: the job's own parameters."""
    prompts = _as_bytes(token_ids)
    hasher = question_hasher(default)
    records: list[dict[str, Any]] = []
    for row in rows:
        if isinstance(row, BrokenRow):
            records.append({"error_type": row.error_type, "error": row.error})
            continue
        sampling, prompt = row.sampling, next(prompts)
        is_default = sampling is default or sampling == default
        digest = hasher.copy() if is_default else question_hasher(sampling)
        digest.update(prompt)
        records.append(
            {
                "digest": digest.digest(),
                "prompt": prompt,
                "num_tokens": len(prompt) // TOKEN_BYTES,
                "sampling": None if is_default else sampling.model_dump_json(),
                "max_tokens": sampling.max_tokens,
                "ignore_eos": sampling.ignore_eos,
                "is_greedy": sampling.is_greedy,
                "priority": row.priority,
            }
        )
    return pa.RecordBatch.from_pylist(records, SCHEMA)


def _as_bytes(token_ids: Sequence[Sequence[int]]) -> Iterator[bytes]:
    """identity.prompt_bytes of each, converted all at once."""
    ends = np.cumsum([len(ids) for ids in token_ids], dtype=np.int64)
    flat = np.fromiter(chain.from_iterable(token_ids), np.uint32, count=ends[-1] if len(ends) else 0)
    content = flat.astype(">u4").tobytes()
    begin = 0
    for end in (TOKEN_BYTES * ends).tolist():
        yield content[begin:end]
        begin = end
