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
    wanted: Mask = is_pending.to_numpy(zero_copy_only=False).copy()
    rows = np.flatnonzero(wanted)
    if not len(rows):
        return wanted
    # Sorted by their 16 bytes, as two numbers; a table of hashes would take four times the memory of the ids.
    values = np.frombuffer(request_ids.filter(is_pending).buffers()[1], dtype=np.uint64)[: 2 * len(rows)].reshape(-1, 2)
    order = np.lexsort((rows, values[:, 1], values[:, 0]))
    is_repeat = (values[order][1:] == values[order][:-1]).all(axis=1)
    wanted[rows[order[1:][is_repeat]]] = False
    return wanted


def by_priority(rows: Ints, priorities: Ints) -> Ints:
    """Places of the rows, the most urgent first, of equals the first in the input. priorities: of each of them."""
    return np.lexsort((rows, -priorities))
