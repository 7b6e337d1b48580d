"""The order in which the rows of a job are run."""

from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Rows = npt.NDArray[np.int64]


def run_order(
    prompts: pa.ChunkedArray, request_ids: pa.Array, policy: Literal["prefix", "fcfs"], done: pa.Array
) -> Rows:
    """Rows to run, one for each distinct request that is not done.

    prompts: token ids as big-endian bytes, null where a row cannot be run. With policy "prefix" prompts that begin
    alike are neighbours, which is the depth-first order of their prefix tree; with "fcfs" the input order stays.
    """
    first = _first_occurrences(request_ids)
    is_pending = pc.and_(pc.is_valid(request_ids), pc.invert(pc.is_in(request_ids, value_set=done)))
    is_wanted = np.logical_and(first, is_pending.to_numpy(zero_copy_only=False))
    if policy == "fcfs":
        in_input_order: Rows = np.flatnonzero(is_wanted)
        return in_input_order
    order: Rows = pc.sort_indices(pa.table({"prompt": prompts}), [("prompt", "ascending")]).to_numpy().astype(np.int64)
    ordered: Rows = order[is_wanted[order]]
    return ordered


def _first_occurrences(request_ids: pa.Array) -> npt.NDArray[np.bool_]:
    """True for each row that is the first one with its request id."""
    codes = pc.dictionary_encode(request_ids).indices.fill_null(-1).to_numpy()
    is_first = np.zeros(len(codes), dtype=np.bool_)
    _, positions = np.unique(codes, return_index=True)
    is_first[positions] = True
    return is_first
