"""Find the input files of a job."""

import glob
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, NoReturn

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

    A file or folder that is there is never taken for a glob. Raises DataError for what is missing, empty, unreadable
    or of an unknown kind.
    """
    files: list[InputFile] = []
    for name in inputs:
        shown = re.sub(r"\[([*?[])\]", r"\1", name)  # as it was before glob.escape
        if "://" in name:
            raise DataError(f"input {shown!r}: remote inputs are not supported; give a file, a glob or a folder")
        try:
            found = _find(name)
        except OSError as error:
            raise DataError(f"input {shown!r:.300}: {error.strerror}") from error
        if not found:
            raise DataError(f"input {shown!r}: no such file, or nothing in it ({', '.join(_SUFFIXES)})")
        files += found
    return files


def _find(name: str) -> list[InputFile]:
    path = Path(name)
    if path.is_dir():
        return [InputFile(file, kind) for file in _files_below(path) if (kind := _format(file))]
    if path.exists() or not glob.has_magic(name):
        return [_input_file(path)]
    matches = [Path(match) for match in sorted(set(glob.glob(name, recursive=True)))]  # noqa: PTH207  absolute
    matches = [match for match in matches if not match.is_dir() and not _is_private(match, path)]
    known = [match for match in matches if _format(match)]
    return [_input_file(match) for match in known or matches]


def _is_private(path: Path, pattern: Path) -> bool:
    """Whether the path has a name that begins with . or _ where the pattern does not (state, _SUCCESS)."""
    return any(
        name[0] in "._" and not any(part[0] == name[0] and fnmatchcase(name, part) for part in pattern.parts)
        for name in path.parts
    )


def _files_below(folder: Path) -> Iterator[Path]:
    """Files of a folder and its folders, without those that begin with . or _ (state, _SUCCESS)."""
    for root, folders, names in os.walk(folder, onerror=_stop):
        folders[:] = sorted(name for name in folders if name[0] not in "._")
        yield from (Path(root) / name for name in sorted(names) if name[0] not in "._")


def _stop(error: OSError) -> NoReturn:
    """A folder that cannot be read is an error: its rows would be lost in silence."""
    raise error


def _format(path: Path) -> Literal["parquet", "jsonl"] | None:
    return next((kind for suffix, kind in _SUFFIXES.items() if path.name.endswith(suffix)), None)


def _input_file(path: Path) -> InputFile:
    kind = _format(path)
    if kind is None:
        raise DataError(f"input {str(path)!r}: unknown kind of file; known are {', '.join(_SUFFIXES)}")
    if not path.exists():
        raise DataError(f"input {str(path)!r}: no such file")
    return InputFile(path, kind)
