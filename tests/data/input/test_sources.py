"""Finding the input files: names, globs and folders, in order."""

from pathlib import Path

import pytest

from batchrunner.data.input.sources import find_inputs
from batchrunner.errors import DataError


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with everything in it that may be there."""
    names = ["b.jsonl", "a.parquet", "c.jsonl.gz", "d.jsonl.zst", "e.ndjson", "sub/f.jsonl", "sub/deep/g.parquet"]
    ignored = [
        ".hidden.jsonl",
        "_SUCCESS",
        "_tmp.jsonl",
        "notes.txt",
        ".batchrun/x.jsonl",
        "_old/y.jsonl",
        "summary.json",
    ]
    for name in names + ignored:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path


def found_names(root: Path, *inputs: str) -> list[str]:
    return [str(file.path.relative_to(root)) for file in find_inputs(tuple(str(root / name) for name in inputs))]


def test_a_folder_gives_its_files_in_order_without_hidden_and_private_ones(tree: Path) -> None:
    assert found_names(tree, ".") == [
        "a.parquet",
        "b.jsonl",
        "c.jsonl.gz",
        "d.jsonl.zst",
        "e.ndjson",
        "sub/f.jsonl",
        "sub/deep/g.parquet",
    ]


def test_the_format_follows_from_the_suffix(tree: Path) -> None:
    formats = [file.format for file in find_inputs((str(tree),))]
    assert formats == ["parquet", "jsonl", "jsonl", "jsonl", "jsonl", "jsonl", "parquet"]


@pytest.mark.parametrize(
    ("inputs", "names"),
    [
        (["b.jsonl"], ["b.jsonl"]),
        (["e.ndjson", "b.jsonl", "a.parquet"], ["e.ndjson", "b.jsonl", "a.parquet"]),
        (["*.jsonl*"], ["b.jsonl", "c.jsonl.gz", "d.jsonl.zst"]),
        (["**/*.jsonl"], ["b.jsonl", "sub/f.jsonl"]),
        (["*"], ["a.parquet", "b.jsonl", "c.jsonl.gz", "d.jsonl.zst", "e.ndjson"]),
        (["_*.jsonl", "_old/*", ".*/x.jsonl"], ["_tmp.jsonl", "_old/y.jsonl", ".batchrun/x.jsonl"]),
        (["**/**/f.jsonl"], ["sub/f.jsonl"]),
        (["**/*.parquet"], ["a.parquet", "sub/deep/g.parquet"]),
        (["s*/f.jsonl", "sub/deep"], ["sub/f.jsonl", "sub/deep/g.parquet"]),
        (["b.jsonl", "b.jsonl"], ["b.jsonl", "b.jsonl"]),
        ([".hidden.jsonl"], [".hidden.jsonl"]),
    ],
)
def test_inputs_are_files_lists_globs_and_folders(tree: Path, inputs: list[str], names: list[str]) -> None:
    assert found_names(tree, *inputs) == names


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.jsonl", "no such file"),
        ("none*.jsonl", "no such file, or nothing in it"),
        ("notes.txt", "unknown kind of file; known are .parquet, .jsonl,"),
        ("none.txt", "unknown kind of file"),
        ("*.txt", "unknown kind of file"),
        ("_old/*.parquet", "no such file, or nothing in it"),
    ],
)
def test_an_input_that_is_missing_or_unknown_is_named(tree: Path, name: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        found_names(tree, "b.jsonl", name)
    assert name.rsplit("/", 1)[-1].replace("*.txt", "notes.txt") in str(caught.value)


def test_a_folder_without_rows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(DataError, match="nothing in it"):
        find_inputs((str(tmp_path),))


@pytest.mark.parametrize("name", ["s3://bucket/x.jsonl", "hf://org/data", "https://host/x.parquet"])
def test_remote_inputs_are_refused_by_name(name: str) -> None:
    with pytest.raises(DataError, match="remote inputs are not supported") as caught:
        find_inputs((name,))
    assert name in str(caught.value)


def test_a_file_with_brackets_in_its_name_is_found(tmp_path: Path) -> None:
    (tmp_path / "data[1].jsonl").touch()
    assert found_names(tmp_path, "data[1].jsonl") == ["data[1].jsonl"]


def test_a_name_too_long_for_a_path_is_refused() -> None:
    with pytest.raises(DataError):
        find_inputs(("x" * 5000 + ".jsonl",))
