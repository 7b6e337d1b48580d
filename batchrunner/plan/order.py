"""The order in which the rows of a job are run."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Rows = npt.NDArray[np.int64]
SORT_KEYS = {"prefix": ("prompt", "ascending"), "priority": ("priority", "descending")}  # the sort is stable


def run_order(spool: pa.Table, request_ids: pa.Array, policy: str, done: pa.Array) -> Rows:
    """Rows to run, one for each distinct request that is not done.

    spool: prompt, the token ids as big-endian bytes, null where a row cannot be run; priority. With policy "prefix"
    prompts that begin alike are neighbours, which is the depth-first order of their prefix tree; with "priority" the
    most urgent rows come first; with all others the input order stays.
    """
    order = np.arange(spool.num_rows)
    if policy in SORT_KEYS:
        order = pc.sort_indices(spool, [SORT_KEYS[policy]]).to_numpy().astype(np.int64)
    ordered_ids = request_ids.take(pa.array(order))
    is_pending = pc.and_(pc.is_valid(ordered_ids), pc.invert(pc.is_in(ordered_ids, value_set=done)))
    is_wanted = np.logical_and(_first_occurrences(ordered_ids), is_pending.to_numpy(zero_copy_only=False))
    wanted: Rows = order[is_wanted]
    return wanted


def _first_occurrences(request_ids: pa.Array) -> npt.NDArray[np.bool_]:
    """True at each place that is the first one with its request id."""
    codes = pc.dictionary_encode(request_ids).indices.fill_null(-1).to_numpy()
    is_first = np.zeros(len(codes), dtype=np.bool_)
    _, positions = np.unique(codes, return_index=True)
    is_first[positions] = True
    return is_first
