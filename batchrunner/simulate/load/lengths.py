"""How long the answers of a simulated run really are, which the scheduler does not know beforehand."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from batchrunner.errors import DataError, UsageError

# Answers in ShareGPT are 338 tokens long in the mean (vLLM, arXiv 2309.06180, figure 11) with a long tail. A log-normal
# of mean 340 and sigma 1.03 has its median at 200, and one answer in ten is over 750.
SHAREGPT_OUTPUT = (340.0, 1.03)
_COLUMN = "num_output_tokens"
_FORMS = (
    "max, fixed:N, uniform:A,B, lognormal:MEAN,SIGMA, sharegpt, run:OUTPUT_FOLDER, "
    "or a file (.jsonl, .parquet with a column num_output_tokens; .txt with a number a line)"
)

Ints = npt.NDArray[np.int64]
Draw = Callable[[Ints, np.random.Generator], npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Lengths:
    """Where the lengths come from. text: what the user wrote; listed: lengths row by row, where they are not drawn."""

    text: str
    draw: Draw  # the longest allowed lengths → lengths, not yet held against them
    listed: Ints | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """The value of --lengths. Raises UsageError, or DataError for what a file or folder holds."""
        kind, _, value = text.partition(":")
        if text == "max":
            return cls(text, lambda limits, rng: limits)
        if text == "sharegpt":
            return cls(text, lognormal(*SHAREGPT_OUTPUT))
        if kind == "fixed":
            (length,) = _numbers(text, value, int)
            return cls(text, lambda limits, rng: np.full(len(limits), length))
        if kind == "uniform":
            low, high = _numbers(text, value, int, int)
            if low > high:
                raise UsageError(f"--lengths {text}: {low:g} is above {high:g}; write the smaller number first")
            return cls(text, lambda limits, rng: rng.integers(int(low), int(high), len(limits), endpoint=True))
        if kind == "lognormal":
            mean, sigma = _numbers(text, value, float, float)
            return cls(text, lognormal(mean, sigma))
        return cls._of_list(text, _lengths_of_run(text, Path(value)) if kind == "run" else _read(text))

    @classmethod
    def _of_list(cls, text: str, lengths: Ints) -> Self:
        return cls(text, _listed(text, lengths), lengths)

    def of_first(self, num_rows: int) -> Self:
        """Of the first rows alone: a list may be longer than that."""
        return self if self.listed is None else self._of_list(self.text, self.listed[:num_rows])

    def for_rows(self, max_output_tokens: Sequence[int], seed: int) -> list[int]:
        """One length a row, from 1 up to the row's longest. Raises UsageError if a list has more or fewer."""
        limits = np.asarray(max_output_tokens, dtype=np.int64)
        lengths = np.rint(self.draw(limits, np.random.default_rng(seed)))
        clipped: list[int] = np.clip(lengths, 1, limits).astype(np.int64).tolist()
        return clipped


def lognormal(mean: float, sigma: float) -> Draw:
    """mean: of the lengths; sigma: the standard deviation of their logarithms."""
    return lambda limits, rng: rng.lognormal(np.log(mean) - sigma**2 / 2, sigma, len(limits))


def _numbers(text: str, value: str, *kinds: type[int] | type[float]) -> list[float]:
    try:
        numbers: list[float] = [kind(part) for kind, part in zip(kinds, value.split(","), strict=True)]
    except ValueError:
        numbers = []
    if not numbers or not all(0 < number < 2**31 for number in numbers):
        whole = "whole number" if kinds[0] is int else "number"
        wanted = f"one {whole}" if len(kinds) == 1 else f"{len(kinds)} {whole}s with a comma between them,"
        raise UsageError(f"--lengths {text}: write {wanted} above 0 after the colon")
    return numbers


def _listed(text: str, lengths: Ints) -> Draw:
    def draw(limits: Ints, rng: np.random.Generator) -> Ints:
        if len(lengths) != len(limits):
            raise UsageError(
                f"--lengths {text}: has {len(lengths):,} lengths, and there are {len(limits):,} rows; "
                "give one length for each row"
            )
        return lengths

    return draw


def _read(text: str) -> Ints:
    path = Path(text)
    if path.suffix not in (".jsonl", ".parquet", ".txt"):
        raise UsageError(f"--lengths {text}: unknown; write {_FORMS}")
    if not path.exists():
        raise UsageError(f"--lengths {text}: there is no such file; name one that is there")
    if path.suffix == ".parquet":
        return _from_parquet(text, [path], _COLUMN)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"--lengths {text}: cannot be read: {error}; give a text file") from error
    return np.array([_of_line(text, number, line) for number, line in enumerate(lines, 1)], dtype=np.int64)


def _of_line(text: str, number: int, line: str) -> int:
    try:
        value = json.loads(line)
        if isinstance(value, dict):
            value = value[_COLUMN]
    except (ValueError, KeyError):
        value = None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**31:
        raise DataError(
            f"--lengths {text}: line {number}: {line[:80]!r} has no length; "
            f'write a whole number, or {{"{_COLUMN}": N}} in a .jsonl file'
        )
    return value


def _lengths_of_run(text: str, folder: Path) -> Ints:
    files = sorted(folder.glob("data-*-of-*.parquet"))
    if not (folder / "_SUCCESS").exists() or not files:
        raise UsageError(f"--lengths {text}: is not the output folder of a finished run; run its job to the end first")
    return _from_parquet(text, files, f"_batchrun.{_COLUMN}")


def _from_parquet(text: str, files: Sequence[Path], column: str) -> Ints:
    """Rows that were never answered have no length: they count as 0 here, and so as 1 in the end."""
    name, _, child = column.partition(".")
    try:
        table = pa.concat_tables([pq.ParquetFile(file).read(columns=[column]) for file in files])
        if table.num_columns == 0:
            raise DataError(f"--lengths {text}: has no column {column}; give a file with one")
        values = pc.struct_field(table[name], child) if child else table[name]
        lengths: Ints = values.cast(pa.uint32()).fill_null(0).to_numpy().astype(np.int64)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"--lengths {text}: column {column}: {error}; it should hold whole numbers") from error
    return lengths
