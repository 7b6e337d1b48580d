"""Find the input files of a job."""

import glob
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from batchrunner.errors import DataError

_SUFFIXES: dict[str, Literal["parquet", "jsonl"]] = {
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".jsonl.gz": "jsonl",
    ".jsonl.zst": "jsonl",
    ".ndjson": "jsonl",
    ".ndjson.gz": "jsonl",
    ".ndjson.zst": "jsonl",
}


@dataclass(frozen=True, slots=True)
class InputFile:
    path: Path
    format: Literal["parquet", "jsonl"]


def find_inputs(inputs: tuple[str, ...]) -> list[InputFile]:
    """The files behind `input:`, in the order given; a glob or a folder is sorted by name.

    Raises DataError for what is missing, empty or of an unknown kind.
    """
    files: list[InputFile] = []
    for name in inputs:
        if "://" in name:
            raise DataError(f"input {name!r}: remote inputs are not supported; give a file, a glob or a folder")
        if Path(name).is_dir():
            found = [InputFile(path, kind) for path in _files_below(Path(name)) if (kind := _format(path))]
        else:
            paths = sorted(glob.glob(name, recursive=True)) if glob.has_magic(name) else [name]  # noqa: PTH207  absolute
            found = [_input_file(Path(path)) for path in paths if not Path(path).is_dir()]
        if not found:
            raise DataError(f"input {name!r}: no such file, or nothing in it ({', '.join(_SUFFIXES)})")
        files += found
    return files


def _files_below(folder: Path) -> Iterator[Path]:
    """Files of a folder and its folders, without those that begin with . or _ (state, _SUCCESS)."""
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name[0] not in "._")
        yield from (Path(root) / name for name in sorted(names) if name[0] not in "._")


def _format(path: Path) -> Literal["parquet", "jsonl"] | None:
    return next((kind for suffix, kind in _SUFFIXES.items() if path.name.endswith(suffix)), None)


def _input_file(path: Path) -> InputFile:
    kind = _format(path)
    if kind is None:
        raise DataError(f"input {str(path)!r}: unknown kind of file; known are {', '.join(_SUFFIXES)}")
    if not path.exists():
        raise DataError(f"input {str(path)!r}: no such file")
    return InputFile(path, kind)
