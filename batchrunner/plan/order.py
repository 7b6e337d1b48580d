"""Which rows of a job are run: one for each distinct request that is not done."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def wanted_rows(request_ids: pa.Array, done: pa.Array) -> Mask:
    """request_ids: null for rows that cannot be asked; done: ids that have their answer. Of rows that ask the same the
    first one is wanted."""
    is_pending = pc.and_(pc.is_valid(request_ids), pc.invert(pc.is_in(request_ids, value_set=done)))
    codes = pc.dictionary_encode(request_ids).indices.fill_null(-1).to_numpy()
    is_first = np.zeros(len(codes), dtype=np.bool_)
    _, rows = np.unique(codes, return_index=True)
    is_first[rows] = True
    wanted: Mask = np.logical_and(is_first, is_pending.to_numpy(zero_copy_only=False))
    return wanted


def by_priority(rows: Ints, priorities: Ints) -> Ints:
    """Places of the rows, the most urgent first, of equals the first in the input. priorities: of each of them."""
    return np.lexsort((rows, -priorities))
