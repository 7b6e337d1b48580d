"""The order in which prompts that begin alike are neighbours: depth-first through the tree of their prefixes."""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from batchrunner.errors import StorageError
from batchrunner.plan.external_sort import ExternalSorter
from batchrunner.plan.prompt_pieces import Ints, PromptPieces
from batchrunner.plan.tied_rows import SORTED_BY, TiedRows

DEFAULT_MEMORY_BYTES = 200_000_000
SCRATCH_FOLDER = "prefix-order"
SPILLED_ROW_BYTES = 400

_TOKEN = np.dtype(">u4")  # big-endian: the order of the bytes is the order of the ids


@dataclass(frozen=True, slots=True)
class PrefixOrder:
    """Prompts in the order of their token ids, equal ones by row number; all arrays are int64 [num_rows].

    rows: row numbers. num_tokens: of each prompt. num_shared: tokens that it and the prompt before it both begin with;
    0 for the first. No prompt farther before it shares more.
    """

    rows: Ints
    num_tokens: Ints
    num_shared: Ints

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def num_tree_tokens(self) -> int:
        """Distinct prefixes, which are the nodes of the tree: what is computed where each is computed once."""
        return int((self.num_tokens - self.num_shared).sum())

    @property
    def num_new(self) -> Ints:
        """Tokens of each prompt that an engine with memory enough computes: the last one always, for its logits."""
        num_new: Ints = self.num_tokens - np.minimum(self.num_shared, np.maximum(self.num_tokens - 1, 0))
        return num_new

    @property
    def num_to_compute(self) -> int:
        return int(self.num_new.sum())

    @property
    def num_shared_apart(self) -> Ints:
        """num_shared without what all prompts begin with: that stays in memory whatever runs between two neighbours."""
        if len(self) < 2:
            return np.zeros_like(self.num_shared)
        apart: Ints = self.num_shared - self.num_shared[1:].min()
        apart[0] = 0
        return apart

    def unshared(self) -> "PrefixOrder":
        """The same for an engine that shares nothing."""
        return PrefixOrder(self.rows, self.num_tokens, np.zeros_like(self.num_shared))

    def keep(self, mask: npt.NDArray[np.bool_]) -> "PrefixOrder":
        """Only the rows at places where the mask [num_rows] is true, with what they share with each other."""
        kept = np.flatnonzero(mask)
        if not len(kept):
            return PrefixOrder(self.rows[:0], self.num_tokens[:0], self.num_shared[:0])
        # What two prompts share is the least that any two neighbours from the one to the other share.
        begins = np.concatenate([[0], kept[:-1] + 1])
        num_shared = np.minimum.reduceat(self.num_shared[: kept[-1] + 1], begins)
        return PrefixOrder(self.rows[kept], self.num_tokens[kept], num_shared)


def order_by_prefix(
    batches: Iterable[pa.RecordBatch], folder: Path, memory_bytes: int = DEFAULT_MEMORY_BYTES
) -> PrefixOrder:
    """Of prompts on disk, of any number and length; they are read once and never all in memory.

    batches: row, int64, not negative, each once; prompt, large_binary, the token ids as big-endian uint32. folder: the
    job's own; the prompts and up to SPILLED_ROW_BYTES a row are written to it and removed again. memory_bytes: for
    sorting, 100 MB or more for each of up to two threads. Beside it there are 60 bytes a row and one batch.

    The most significant piece first: prompts are sorted by their first 64 tokens, then those that are equal so far by
    their next 64, and so on. Of what a prompt has to itself 64 tokens are compared at most, and no sort has long rows.

    Raises StorageError where the disk is full or fails, or memory_bytes is too little; what reading `batches` raises.
    """
    scratch = folder / SCRATCH_FOLDER
    with _scratch_folder(scratch):
        pieces = PromptPieces(scratch / "pieces.arrow", batches)
        ties = TiedRows(pieces.rows)
        with ExternalSorter(scratch, memory_bytes) as sorter:
            level = 0
            while ties.num_tied:
                to_sort = pa.RecordBatchReader.from_batches(SORTED_BY, ties.to_sort(pieces.read(level)))
                ties.settle(sorter.sort(to_sort))
                level += 1
    num_tokens = np.empty(pieces.rows.max(initial=-1) + 1, dtype=np.int64)
    num_tokens[pieces.rows] = pieces.num_tokens
    return PrefixOrder(ties.rows, num_tokens[ties.rows], ties.num_shared)


def order_in_memory(prompts: Sequence[Sequence[int]]) -> PrefixOrder:
    """Of some thousand prompts in memory, given as token ids; row numbers are their positions."""
    as_bytes = [np.asarray(prompt, dtype=_TOKEN).tobytes() for prompt in prompts]
    rows = sorted(range(len(prompts)), key=as_bytes.__getitem__)
    num_shared = [_num_common(as_bytes[before], as_bytes[row]) for before, row in pairwise(rows)]
    return PrefixOrder(
        np.array(rows, dtype=np.int64),
        np.array([len(prompts[row]) for row in rows], dtype=np.int64),
        np.array([0, *num_shared][: len(rows)], dtype=np.int64),
    )


def _num_common(left: bytes, right: bytes) -> int:
    size = min(len(left), len(right))
    differs = np.frombuffer(left[:size], _TOKEN) != np.frombuffer(right[:size], _TOKEN)
    return int(np.append(differs, True).argmax())


@contextmanager
def _scratch_folder(folder: Path) -> Iterator[None]:
    """An empty folder, removed at the end; what a killed run left there goes first."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        yield
    except OSError as error:
        num_written = sum(path.stat().st_size for path in folder.glob("*"))
        raise StorageError(
            f"{folder}: cannot put the prompts in order: {error}. There were {num_written:,} bytes in it; the prompts "
            f"and {SPILLED_ROW_BYTES} bytes a row are needed. Free some space, or choose an output on a larger disk"
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
