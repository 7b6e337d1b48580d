"""Reading rows: files found, lines and tables read, and the types of columns that pass through."""

import datetime
import decimal
import gzip
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from batchrunner.data import columns as columns_module
from batchrunner.data import json_types
from batchrunner.data import rows as rows_module
from batchrunner.data.columns import JsonColumns, input_tables, json_table, parquet_schema
from batchrunner.data.rows import Row, parquet_tables, read_rows
from batchrunner.data.sources import InputFile, find_inputs
from batchrunner.data.zstd_stream import ZstdStream
from batchrunner.errors import DataError

BIG = 2**53 + 1  # no float holds it


def jsonl(path: Path, content: bytes | Sequence[Any]) -> InputFile:
    """A JSONL file of these bytes, or of one line for each value."""
    if not isinstance(content, bytes):
        content = b"".join(json.dumps(value).encode() + b"\n" for value in content)
    path.write_bytes(content)
    return InputFile(path, "jsonl")


def parquet(path: Path, columns: dict[str, Any] | pa.Table) -> InputFile:
    pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), path)
    return InputFile(path, "parquet")


def all_rows(file: InputFile) -> list[Row]:
    return [row for batch in read_rows(file) for row in batch]


def values_of(file: InputFile) -> list[dict[str, Any]]:
    found = all_rows(file)
    assert all(row.error is None for row in found)
    return [row.values for row in found]


# --- finding files --------------------------------------------------------------------------------------------------


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


# --- lines ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        b'{"a": 1}\n{"a": 2}\n',
        b'{"a": 1}\n{"a": 2}',
        b'{"a": 1}\r\n{"a": 2}\r\n',
        b'\xef\xbb\xbf{"a": 1}\n{"a": 2}\n',
        b'\n\n{"a": 1}\n  \t\r\n{"a": 2}\n\n',
        b'  {"a": 1}  \n\t{"a": 2}\n',
    ],
    ids=["plain", "no last newline", "CRLF", "BOM", "blank lines", "spaces"],
)
def test_lines_are_read_however_they_end(tmp_path: Path, content: bytes) -> None:
    assert values_of(jsonl(tmp_path / "a.jsonl", content)) == [{"a": 1}, {"a": 2}]


def test_a_row_knows_its_file_and_line_also_after_blank_ones(tmp_path: Path) -> None:
    file = jsonl(tmp_path / "a.jsonl", b'\n{"a": 1}\n\n\n{"a": 2}\n')
    assert [row.place for row in all_rows(file)] == [f"{file.path}, line 2", f"{file.path}, line 5"]


def test_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    assert list(read_rows(jsonl(tmp_path / "a.jsonl", b""))) == []


def test_characters_of_all_kinds_stay_what_they_are(tmp_path: Path) -> None:
    values = [{"a": "é 你好 🎉 \u2028 \x00 \x85"}, {"ключ": "\\n"}]
    content = b"".join(json.dumps(value, ensure_ascii=False).encode() + b"\n" for value in values)
    assert values_of(jsonl(tmp_path / "a.jsonl", content)) == values
    assert values_of(jsonl(tmp_path / "b.jsonl", values)) == values


@pytest.mark.parametrize("content", [b"\xef\xbb\xbf", b'\xef\xbb\xbf\r\n{"a": 1}\n'])
def test_a_line_with_nothing_but_a_byte_order_mark_is_blank(tmp_path: Path, content: bytes) -> None:
    assert values_of(jsonl(tmp_path / "a.jsonl", content)) == [{"a": 1}][: content.count(b"a")]


@pytest.mark.parametrize(
    ("line", "error_type", "message"),
    [
        (b'{"a": 1', "bad_json", "not valid JSON: Expecting"),
        (b"{'a': 1}", "bad_json", "not valid JSON: Expecting property name"),
        (b'{"a": 1} {"a": 2}', "bad_json", "not valid JSON: Extra data"),
        (b"hello", "bad_json", "not valid JSON: Expecting value: line 1 column 1 (char 0): hello"),
        (b"[1, 2]", "bad_json", "not a JSON object: [1, 2]"),
        (b'"text"', "bad_json", 'not a JSON object: "text"'),
        (b"null", "bad_json", "not a JSON object: null"),
        (b'{"a": 1' + b"0" * 5000 + b"}", "bad_json", "not valid JSON: "),
        (b"[" * 100_000, "bad_json", "not valid JSON: "),
        (b'{"a": ' * 100_000, "bad_json", "not valid JSON: "),
        (b'{"a": "\xff"}', "bad_encoding", "not valid UTF-8: invalid start byte"),
        (b'{"a": "\xed\xa0\x80"}', "bad_encoding", "not valid UTF-8: "),
        (b'{"a": "\\ud800"}', "bad_encoding", "not valid UTF-8: surrogates not allowed"),
        (b'{"a": [{"b": "x\\udfffy"}]}', "bad_encoding", "not valid UTF-8: surrogates not allowed"),
        (b'{"\\udc00": 1}', "bad_encoding", "not valid UTF-8: surrogates not allowed"),
    ],
)
def test_a_bad_line_is_an_error_row_and_its_neighbours_are_unharmed(
    tmp_path: Path, line: bytes, error_type: str, message: str
) -> None:
    file = jsonl(tmp_path / "a.jsonl", b'{"a": 1}\n' + line + b'\n{"a": 3}\n')
    first, bad, last = all_rows(file)
    assert (first.values, first.error, last.values, last.error) == ({"a": 1}, None, {"a": 3}, None)
    assert bad.values == {}
    assert bad.error is not None
    assert bad.error.error_type == error_type
    assert str(bad.error).startswith(f"{file.path}, line 2: {message}")
    assert len(str(bad.error)) < len(str(file.path)) + 250


def test_a_pair_of_surrogates_is_one_character(tmp_path: Path) -> None:
    assert values_of(jsonl(tmp_path / "a.jsonl", b'{"a": "\\ud83c\\udf89"}\n')) == [{"a": "🎉"}]


@pytest.mark.parametrize("num_extra", [1, 2, 39, 40, 41, 400])
@pytest.mark.parametrize("ending", [b"\n", b""])
def test_a_line_that_is_too_long_is_an_error_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_extra: int, ending: bytes
) -> None:
    monkeypatch.setattr(rows_module, "MAX_LINE_BYTES", 40)
    long = b'{"a": "' + b"x" * (40 - 9 + num_extra) + b'"}'
    assert len(long) == 40 + num_extra
    content = b'{"a": 1}\n' + long + ending + (b'{"a": 3}\n' if ending else b"")
    found = all_rows(jsonl(tmp_path / "a.jsonl", content))
    assert [row.values for row in found] == [{"a": 1}, {}, {"a": 3}][: 2 + len(ending)]
    assert found[1].error is not None
    assert found[1].error.error_type == "line_too_long"
    assert str(found[1].error).endswith("a.jsonl, line 2: longer than 40 bytes")
    assert [row.place.rpartition(" ")[2] for row in found] == ["1", "2", "3"][: 2 + len(ending)]


@pytest.mark.parametrize("ending", [b"", b"\n"])
def test_a_line_of_just_the_limit_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: bytes) -> None:
    monkeypatch.setattr(rows_module, "MAX_LINE_BYTES", 8)
    assert values_of(jsonl(tmp_path / "a.jsonl", b'{"a": 1}' + ending)) == [{"a": 1}]


def test_rows_come_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "BATCH_ROWS", 3)
    file = jsonl(tmp_path / "a.jsonl", [{"i": i} for i in range(7)])
    assert [len(batch) for batch in read_rows(file)] == [3, 3, 1]
    table = parquet(tmp_path / "a.parquet", {"i": list(range(7))})
    batches = list(read_rows(table))
    assert [len(batch) for batch in batches] == [3, 3, 1]
    assert [row.values["i"] for batch in batches for row in batch] == list(range(7))
    assert len({row.place for batch in batches for row in batch}) == 7


def test_a_parquet_file_that_has_vanished_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.parquet"):
        all_rows(InputFile(tmp_path / "gone.parquet", "parquet"))


@pytest.mark.parametrize("name", ["gone.jsonl", "gone.jsonl.gz", "gone.jsonl.zst"])
def test_a_text_file_that_has_vanished_is_an_error_with_its_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=name):
        all_rows(InputFile(tmp_path / name, "jsonl"))


# --- compressed files -----------------------------------------------------------------------------------------------

MANY = b"".join(b'{"a": %d}\n' % (i * 7919) for i in range(20_000))


def compress(name: str, content: bytes) -> bytes:
    return gzip.compress(content) if name.endswith(".gz") else zstandard.compress(content)


COMPRESSED = ["a.jsonl.gz", "a.jsonl.zst"]


@pytest.mark.parametrize("name", COMPRESSED)
@pytest.mark.parametrize("num_parts", [1, 3])
def test_compressed_files_are_read_also_when_they_were_joined(tmp_path: Path, name: str, num_parts: int) -> None:
    file = jsonl(tmp_path / name, compress(name, b'{"a": 1}\n{"a": 2}\n') * num_parts)
    assert values_of(file) == [{"a": 1}, {"a": 2}] * num_parts


@pytest.mark.parametrize("name", COMPRESSED)
def test_a_line_may_reach_over_two_compressed_parts(tmp_path: Path, name: str) -> None:
    file = jsonl(tmp_path / name, compress(name, b'{"a": 1}\n{"a"') + compress(name, b": 2}\n"))
    assert values_of(file) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("name", COMPRESSED)
def test_what_is_not_compressed_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=f"{name}: unreadable after line 0: "):
        all_rows(jsonl(tmp_path / name, b'{"a": 1}\n{"a": 2}\n'))


@pytest.mark.parametrize("name", COMPRESSED)
def test_a_compressed_file_with_flipped_bytes_is_refused(tmp_path: Path, name: str) -> None:
    content = bytearray(compress(name, MANY))
    for index in range(len(content) // 2, len(content) // 2 + 40):
        content[index] ^= 0xFF
    with pytest.raises(DataError, match=f"{name}: unreadable after line"):
        all_rows(jsonl(tmp_path / name, bytes(content)))


def test_a_gzip_file_with_an_impossible_block_is_refused(tmp_path: Path) -> None:
    content = bytearray(gzip.compress(b'{"a": 1}\n'))
    content[10] = 0x07  # the kind of its first block
    with pytest.raises(DataError):
        all_rows(jsonl(tmp_path / "a.jsonl.gz", bytes(content)))


@pytest.mark.parametrize("cut", [3, 5000])
@pytest.mark.parametrize(
    "name",
    COMPRESSED,
)
def test_a_compressed_file_that_was_cut_off_is_refused_and_loses_no_row_in_silence(
    tmp_path: Path, name: str, cut: int
) -> None:
    with pytest.raises(DataError, match=f"{name}: unreadable after line"):
        all_rows(jsonl(tmp_path / name, compress(name, MANY)[:-cut]))


def test_a_second_zstd_frame_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    frame = zstandard.compress(b'{"a": 1}\n')
    with pytest.raises(DataError):
        all_rows(jsonl(tmp_path / "a.jsonl.zst", frame + frame[:-4]))


@pytest.mark.parametrize("name", COMPRESSED)
def test_a_file_that_unpacks_to_far_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    content = b'{"a": 1}\n' * 20_000
    file = jsonl(tmp_path / name, compress(name, content))
    monkeypatch.setattr(rows_module, "UNSUSPICIOUS_BYTES", len(content))
    assert len(all_rows(file)) == 20_000
    monkeypatch.setattr(rows_module, "UNSUSPICIOUS_BYTES", len(content) - 1)
    with pytest.raises(DataError, match=f"{name}: unpacks to over 200 times its size"):
        all_rows(file)


@pytest.mark.parametrize("name", COMPRESSED)
def test_the_bytes_of_a_line_that_is_too_long_count_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(rows_module, "UNSUSPICIOUS_BYTES", 1000)
    monkeypatch.setattr(rows_module, "MAX_LINE_BYTES", 1000)
    with pytest.raises(DataError, match="unpacks to over"):
        all_rows(jsonl(tmp_path / name, compress(name, b"x" * 1_000_000)))


@pytest.mark.parametrize("num_bytes", [0, 1, 4095, 4096, 4097, 1_000_000])
def test_a_zstd_stream_gives_all_bytes(tmp_path: Path, num_bytes: int) -> None:
    content = random.Random(num_bytes).randbytes(num_bytes)
    path = tmp_path / "a.zst"
    path.write_bytes(zstandard.compress(content) + zstandard.compress(content))
    with ZstdStream(path) as stream:
        assert stream.read() == content * 2


# --- the types of JSONL columns -------------------------------------------------------------------------------------


def through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: Sequence[Any], batch_rows: int) -> pa.Table:
    """The column v with these values, read in batches, typed and written to Parquet."""
    monkeypatch.setattr(rows_module, "BATCH_ROWS", batch_rows)
    file = jsonl(tmp_path / "v.jsonl", [{"v": value} for value in values])
    columns = JsonColumns()
    for batch in read_rows(file):
        columns.see(batch)
    tables = list(input_tables([file], columns.schema(), columns.json_names))
    path = tmp_path / "v.parquet"
    pq.write_table(pa.concat_tables(tables), path)
    return pq.read_table(path)


@pytest.mark.parametrize("batch_rows", [1, 2, 100])
@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([None, None, None], pa.null()),
        ([None, None, 1], pa.int64()),
        ([None, None, "x"], pa.string()),
        ([None, None, {"a": 1}], pa.struct([("a", pa.int64())])),
        ([None, None, [0.5]], pa.list_(pa.float64())),
        ([True, None, False], pa.bool_()),
        ([1, -(2**63), 2**63 - 1], pa.int64()),
        ([1, 2, 0.5], pa.float64()),
        ([0.5, None, 2**53], pa.float64()),
        ([[], [], [1]], pa.list_(pa.int64())),
        ([[], None, []], pa.list_(pa.null())),
        ([[None], [1], None], pa.list_(pa.int64())),
        ([[[1]], [[]], [None]], pa.list_(pa.list_(pa.int64()))),
        (["", "é🎉", "null"], pa.string()),
    ],
)
def test_a_column_has_the_type_that_all_its_values_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_rows: int, values: list[Any], kind: pa.DataType
) -> None:
    table = through(tmp_path, monkeypatch, values, batch_rows)
    assert table["v"].to_pylist() == values
    assert str(table.schema.field("v").type).replace("element", "item") == str(kind)


def test_a_null_in_the_first_batch_does_not_fix_the_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert through(tmp_path, monkeypatch, [None] * 10 + [7], 5)["v"].to_pylist() == [None] * 10 + [7]


@pytest.mark.parametrize("batch_rows", [1, 2, 100])
@pytest.mark.parametrize(
    "values",
    [
        [1, "a", None],
        ["a", 1, 0.5],
        [True, 1, None],
        [1, True, None],
        [True, 0.5, None],
        [BIG, 1, 0.5],
        [0.5, 1, BIG],
        [0.5, -BIG, None],
        [2**63, 1, None],
        [1, 1, 2**64],
        [{}, None, {}],
        [{"a": {}}, None, {"a": None}],
        [[{}], [], None],
        ["x", {"a": 1}, [1]],
        [[1], 1, None],
        [[1], ["x"], None],
        [[1, "x"], None, []],
        [{"a": 1}, {"a": "x"}, None],
        [{"a": [1]}, {"a": None}, {"a": ["x"]}],
        ["é", 1, None],
    ],
    ids=repr,
)
def test_what_no_type_holds_exactly_is_kept_as_json_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_rows: int, values: list[Any]
) -> None:
    table = through(tmp_path, monkeypatch, values, batch_rows)
    assert table.schema.field("v").type == pa.string()
    expected = [None if value is None else json.dumps(value, ensure_ascii=False) for value in values]
    assert table["v"].to_pylist() == expected


@pytest.mark.parametrize(
    "values", [[0.5, True], [0.5, False], [[0.5, True]], [{"a": 0.5}, {"a": True}], [{"a": True}, {"a": 0.5}]], ids=repr
)
def test_true_among_floats_stays_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: list[Any]) -> None:
    found = through(tmp_path, monkeypatch, values, 100)["v"].to_pylist()
    assert found == [json.dumps(value) for value in values]


@pytest.mark.parametrize(
    "batch_rows",
    [1, 100],
)
def test_an_empty_object_among_others_stays_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_rows: int
) -> None:
    found = through(tmp_path, monkeypatch, [{"a": 1}, {}], batch_rows)["v"].to_pylist()
    assert found == ['{"a": 1}', "{}"]


@pytest.mark.parametrize(
    "batch_rows",
    [1, 100],
)
@pytest.mark.parametrize("values", [[{"x": BIG}, {"x": 0.5}], [[BIG], [0.5]], [[[0.5]], [[BIG]]]], ids=repr)
def test_large_integers_inside_a_structure_stay_exact_beside_floats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_rows: int, values: list[Any]
) -> None:
    assert through(tmp_path, monkeypatch, values, batch_rows)["v"].to_pylist() == [json.dumps(v) for v in values]


@pytest.mark.parametrize("batch_rows", [1, 100])
def test_objects_that_are_maps_are_kept_as_json_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_rows: int
) -> None:
    monkeypatch.setattr(json_types, "MAX_FIELDS", 5)
    values = [{str(i): i} for i in range(6)]
    assert through(tmp_path, monkeypatch, values, batch_rows)["v"].to_pylist() == [json.dumps(v) for v in values]
    values = values[:5]
    assert pa.types.is_struct(through(tmp_path, monkeypatch, values, batch_rows).schema.field("v").type)


def test_lists_in_lists_without_end_are_kept_as_json_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    value: Any = 1
    for _ in range(200):
        value = [value]
    assert through(tmp_path, monkeypatch, [value, None], 1)["v"].to_pylist() == [json.dumps(value), None]


def test_rows_without_a_common_key_are_refused_before_memory_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns_module, "MAX_COLUMNS", 2)
    with pytest.raises(DataError, match=r"^line 3: over 2 different keys"):
        JsonColumns().see([Row({str(i): 1}, f"line {i + 1}") for i in range(3)])


@pytest.mark.parametrize("batch_rows", [1, 2, 100])
def test_objects_with_different_fields_become_one_struct(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_rows: int
) -> None:
    values = [{"a": 1}, {"b": "x"}, {"a": 2, "c": {"d": [1]}}, {"c": {"e": 0.5}}, None]
    assert through(tmp_path, monkeypatch, values, batch_rows)["v"].to_pylist() == [
        {"a": 1, "b": None, "c": None},
        {"a": None, "b": "x", "c": None},
        {"a": 2, "b": None, "c": {"d": [1], "e": None}},
        {"a": None, "b": None, "c": {"d": None, "e": 0.5}},
        None,
    ]


@pytest.mark.parametrize("batch_rows", [1, 100])
def test_columns_come_in_the_order_in_which_they_were_first_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_rows: int
) -> None:
    monkeypatch.setattr(rows_module, "BATCH_ROWS", batch_rows)
    file = jsonl(tmp_path / "a.jsonl", [{"b": 1}, {"a": "x", "b": 2}, {"c": None, "a": "y"}])
    columns = JsonColumns()
    for batch in read_rows(file):
        columns.see(batch)
    schema = columns.schema()
    assert schema == pa.schema([("b", pa.int64()), ("a", pa.string()), ("c", pa.null())])
    found = [row for table in input_tables([file], schema, columns.json_names) for row in table.to_pylist()]
    assert found == [
        {"b": 1, "a": None, "c": None},
        {"b": 2, "a": "x", "c": None},
        {"b": None, "a": "y", "c": None},
    ]


def test_an_unreadable_line_is_null_in_every_column(tmp_path: Path) -> None:
    file = jsonl(tmp_path / "a.jsonl", b'{"a": 1}\nbroken\n{"a": 2}\n')
    (table,) = input_tables([file], pa.schema([("a", pa.int64())]), frozenset())
    assert table.to_pylist() == [{"a": 1}, {"a": None}, {"a": 2}]


def test_rows_without_any_column_are_still_rows(tmp_path: Path) -> None:
    file = jsonl(tmp_path / "a.jsonl", [{}, {}, {}])
    (table,) = input_tables([file], pa.schema([]), frozenset())
    assert (table.num_rows, table.num_columns) == (3, 0)


def test_a_value_that_does_not_fit_the_type_found_before_is_an_error_with_its_place() -> None:
    with pytest.raises(DataError, match=r"^f, line 1 and after: column 'a' cannot be kept: "):
        json_table([Row({"a": "x"}, "f, line 1")], pa.schema([("a", pa.int64())]), frozenset())


# --- Parquet --------------------------------------------------------------------------------------------------------

MOMENT = datetime.datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=datetime.UTC)
RICH = {
    "int64": pa.array([2**63 - 1, None, BIG]),
    "uint64": pa.array([2**64 - 1, 0, None], pa.uint64()),
    "int8": pa.array([1, None, -128], pa.int8()),
    "half": pa.array([1.5, None, 0.0], pa.float16()),
    "float": pa.array([0.5, float("inf"), None], pa.float32()),
    "decimal": pa.array([decimal.Decimal("123456789012345678901234567890.12"), None, None], pa.decimal128(38, 2)),
    "wide": pa.array([decimal.Decimal("1.5"), None, None], pa.decimal256(60, 3)),
    "zone": pa.array([MOMENT, None, MOMENT], pa.timestamp("us", "Europe/Berlin")),
    "nanos": pa.array([1, None, 2**62], pa.timestamp("ns")),
    "far": pa.array([2**60, None, -(2**60)], pa.timestamp("ms")),
    "date": pa.array([datetime.date(2020, 1, 2), None, None]),
    "time": pa.array([1, None, 2], pa.time64("ns")),
    "duration": pa.array([1, None, 2], pa.duration("ns")),
    "binary": pa.array([b"\xff\x00", None, b""]),
    "large_binary": pa.array([b"\xff\x00", None, b""], pa.large_binary()),
    "fixed": pa.array([b"abcd", None, b"\xff\xff\xff\xff"], pa.binary(4)),
    "large_string": pa.array(["é", None, ""], pa.large_string()),
    "view": pa.array(["é", None, "x" * 40], pa.string_view()),
    "dictionary": pa.array(["a", None, "b"]).dictionary_encode(),
    "bool": pa.array([True, None, False]),
    "null": pa.nulls(3),
    "list": pa.array([[{"a": [1, None]}, None], None, []], pa.list_(pa.struct([("a", pa.list_(pa.int32()))]))),
    "fixed_list": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int32(), 2)),
    "struct": pa.array([{"a": {"b": None}}, {"a": {"b": 1}}, None], pa.struct([("a", pa.struct([("b", pa.int16())]))])),
    "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    "uuid": pa.array([b"0123456789abcdef", None, None], pa.uuid()),
    "a.b": pa.array([1, 2, 3]),
    "": pa.array(["no name", None, ""]),
}


@pytest.mark.parametrize("batch_rows", [1, 2, 100])
@pytest.mark.parametrize("name", RICH)
def test_a_parquet_column_of_any_type_passes_through_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, batch_rows: int
) -> None:
    monkeypatch.setattr(rows_module, "BATCH_ROWS", batch_rows)
    file = parquet(tmp_path / "a.parquet", {name: RICH[name]})
    schema = parquet_schema([file])
    table = pa.concat_tables(input_tables([file], schema, frozenset()))
    pq.write_table(table, tmp_path / "out.parquet")
    before, after = pq.read_table(file.path), pq.read_table(tmp_path / "out.parquet")
    assert after.schema == before.schema
    assert after[name].combine_chunks().equals(RICH[name]) or after[name].to_pylist() == RICH[name].to_pylist()


def test_the_metadata_of_a_schema_is_left_out(tmp_path: Path) -> None:
    table = pa.table({"a": [1]}).replace_schema_metadata({"pandas": "{}", "huggingface": "{}"})
    assert parquet_schema([parquet(tmp_path / "a.parquet", table)]).metadata is None


def test_only_the_columns_asked_for_are_read(tmp_path: Path) -> None:
    file = parquet(tmp_path / "a.parquet", {"a": [1], "b": [2], "a.b": [3], "s": [{"x": 1, "y": 2}]})
    assert [list(table.column_names) for table in parquet_tables(file, ["b", "a.b"])] == [["b", "a.b"]]
    assert [row.values for batch in read_rows(file, ["s", "none"]) for row in batch] == [{"s": {"x": 1, "y": 2}}]


def test_rows_are_counted_also_when_no_column_is_needed(tmp_path: Path) -> None:
    file = parquet(tmp_path / "a.parquet", {"a": [1, 2, 3]})
    assert [row.values for batch in read_rows(file, []) for row in batch] == [{}, {}, {}]
    assert sum(table.num_rows for table in input_tables([file], pa.schema([]), frozenset())) == 3


@pytest.mark.parametrize(
    ("first", "second", "kind", "values"),
    [
        (pa.nulls(1), pa.array(["x"]), pa.string(), [None, "x"]),
        (pa.array([1], pa.int8()), pa.array([2**40]), pa.int64(), [1, 2**40]),
        (pa.array([1], pa.int8()), pa.array([200], pa.uint8()), pa.int16(), [1, 200]),
        (pa.array([1]), pa.array([0.5]), pa.float64(), [1.0, 0.5]),
        (pa.array(["x"]), pa.array(["y"], pa.large_string()), pa.large_string(), ["x", "y"]),
        (
            pa.array([decimal.Decimal("1.5")], pa.decimal128(5, 1)),
            pa.array([decimal.Decimal("2.25")], pa.decimal128(10, 2)),
            pa.decimal128(10, 2),
            [decimal.Decimal("1.50"), decimal.Decimal("2.25")],
        ),
        (
            pa.array([{"a": 1}]),
            pa.array([{"b": "x"}]),
            pa.struct([("a", pa.int64()), ("b", pa.string())]),
            [{"a": 1, "b": None}, {"a": None, "b": "x"}],
        ),
        (
            pa.array(["x"]).dictionary_encode(),
            pa.array(["y"]).dictionary_encode(),
            pa.dictionary(pa.int32(), pa.string()),
            ["x", "y"],
        ),
    ],
)
def test_files_whose_columns_fit_are_read_with_one_type(
    tmp_path: Path, first: pa.Array, second: pa.Array, kind: pa.DataType, values: list[Any]
) -> None:
    files = [parquet(tmp_path / "a.parquet", {"v": first}), parquet(tmp_path / "b.parquet", {"v": second})]
    schema = parquet_schema(files)
    assert schema == pa.schema([("v", kind)])
    assert pa.concat_tables(input_tables(files, schema, frozenset()))["v"].to_pylist() == values


def test_a_column_that_a_file_lacks_is_null_there(tmp_path: Path) -> None:
    files = [parquet(tmp_path / "a.parquet", {"a": [1]}), parquet(tmp_path / "b.parquet", {"b": ["x"], "a": [2]})]
    schema = parquet_schema(files)
    table = pa.concat_tables(input_tables(files, schema, frozenset()))
    assert table.to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]


@pytest.mark.parametrize("other", [pa.array([1]), pa.array([{"a": 1}]), pa.array([["x"]]), pa.array([True])])
def test_files_that_contradict_each_other_are_refused_by_name(tmp_path: Path, other: pa.Array) -> None:
    files = [parquet(tmp_path / "a.parquet", {"v": ["x"]}), parquet(tmp_path / "b.parquet", {"v": other})]
    with pytest.raises(DataError, match=r"b\.parquet: its columns do not fit those of .*a\.parquet: .*v"):
        parquet_schema(files)


UNFIT = [
    (pa.array([2**60]), pa.array([0.5])),
    (pa.array([0.5]), pa.array([2**60])),
    (pa.array([2**63], pa.uint64()), pa.array([-1])),
    (pa.array([2**60], pa.timestamp("ms")), pa.array([1], pa.timestamp("ns"))),
    (pa.array([decimal.Decimal("123456789012345678.25")], pa.decimal128(38, 2)), pa.array([0.5])),
]


@pytest.mark.parametrize(
    ("first", "second"), UNFIT, ids=["int-float", "float-int", "uint-int", "ms-ns", "decimal-float"]
)
def test_values_that_no_common_type_holds_are_refused_or_kept_exactly(
    tmp_path: Path, first: pa.Array, second: pa.Array
) -> None:
    files = [parquet(tmp_path / "a.parquet", {"v": first}), parquet(tmp_path / "b.parquet", {"v": second})]
    try:
        schema = parquet_schema(files)
        found = pa.concat_tables(input_tables(files, schema, frozenset()))["v"].to_pylist()
    except DataError:
        return
    assert found == first.to_pylist() + second.to_pylist()


@pytest.mark.parametrize(("first", "second"), UNFIT)
def test_a_contradiction_names_both_files_and_the_column(tmp_path: Path, first: pa.Array, second: pa.Array) -> None:
    files = [parquet(tmp_path / "a.parquet", {"v": first}), parquet(tmp_path / "b.parquet", {"v": second})]
    with pytest.raises(DataError, match=r"\.parquet: its columns do not fit those of .*\.parquet: .*'v'") as caught:
        parquet_schema(files)
    assert "a.parquet" in str(caught.value) and "b.parquet" in str(caught.value)


def test_a_contradiction_in_a_column_that_is_not_kept_is_no_trouble(tmp_path: Path) -> None:
    files = [parquet(tmp_path / f"{i}.parquet", {"v": v, "k": [1]}) for i, v in enumerate((["x"], [1], [0.5]))]
    assert parquet_schema(files, ["k"]).field("k").type == pa.int64()


INNER = pa.struct([pa.field("a", pa.list_(pa.field("item", pa.int64(), nullable=False)), nullable=False)])


@pytest.mark.parametrize(
    ("first", "second", "values"),
    [
        (
            pa.array([1], pa.timestamp("s")),
            pa.array([10**6], pa.timestamp("us")),
            [datetime.datetime(1970, 1, 1, 0, 0, 1)],
        ),
        (pa.array([["x"]]), pa.array([["x"]], pa.large_list(pa.large_string())), [["x"]]),
        (pa.array(["x"]).dictionary_encode(), pa.array(["x"]), ["x"]),
        (pa.array([{"a": [1]}]), pa.array([{"a": [1.0]}]), [{"a": [1.0]}]),
        (pa.array([{"a": [1]}], INNER), pa.array([{"a": [1]}]), [{"a": [1]}]),
        (pa.nulls(1), pa.array([{"a": [1]}], INNER), None),
    ],
)
def test_exact_promotions_are_made(tmp_path: Path, first: pa.Array, second: pa.Array, values: list[Any] | None) -> None:
    files = [parquet(tmp_path / "a.parquet", {"v": first}), parquet(tmp_path / "b.parquet", {"v": second})]
    table = pa.concat_tables(input_tables(files, parquet_schema(files), frozenset()))
    pq.write_table(table, tmp_path / "out.parquet")
    assert table["v"].to_pylist() == (values * 2 if values else [None, {"a": [1]}])


def test_a_required_column_that_another_file_lacks_may_be_null(tmp_path: Path) -> None:
    required = pa.table([pa.array([1])], schema=pa.schema([pa.field("a", pa.int64(), nullable=False)]))
    files = [parquet(tmp_path / "a.parquet", required), parquet(tmp_path / "b.parquet", {"b": [2]})]
    table = pa.concat_tables(input_tables(files, parquet_schema(files), frozenset()))
    pq.write_table(table, tmp_path / "out.parquet")
    assert table.to_pylist() == [{"a": 1, "b": None}, {"a": None, "b": 2}]


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    table = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(DataError, match=r"a\.parquet: two columns have the same name"):
        parquet_schema([parquet(tmp_path / "a.parquet", table)])


def test_no_parquet_file_has_no_columns() -> None:
    assert parquet_schema([]) == pa.schema([])


@pytest.mark.parametrize("content", [b"", b"PAR1", b"hello " * 100, b"PAR1" + b"\x00" * 100 + b"PAR1"])
def test_what_is_not_parquet_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"a\.parquet: not readable as Parquet"):
        all_rows(InputFile(path, "parquet"))


def test_a_cut_parquet_file_is_refused(tmp_path: Path) -> None:
    file = parquet(tmp_path / "a.parquet", {"a": list(range(1000))})
    file.path.write_bytes(file.path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"a\.parquet: not readable as Parquet"):
        parquet_schema([file])


def test_a_damaged_page_is_refused_and_not_read_as_data(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"a": list(range(1000))})
    pq.write_table(table, path, compression="none", use_dictionary=False, write_page_checksum=True)
    content = bytearray(path.read_bytes())
    content[2000] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(DataError, match=r"a\.parquet: damaged: .*(CRC|checksum)"):
        all_rows(InputFile(path, "parquet"))


def test_text_in_parquet_that_is_not_utf8_is_an_error_row(tmp_path: Path) -> None:
    offsets = pa.py_buffer(b"\0\0\0\0\2\0\0\0\4\0\0\0")
    bad = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"ok\xff\xfe")])
    first, second = all_rows(parquet(tmp_path / "a.parquet", {"a": bad}))
    assert (first.values, first.error) == ({"a": "ok"}, None)
    assert second.error is not None


def test_a_moment_that_python_cannot_hold_does_not_end_the_job(tmp_path: Path) -> None:
    file = parquet(tmp_path / "a.parquet", {"t": RICH["far"], "a": ["x", "y", "z"]})
    assert [row.values["a"] for row in all_rows(file) if row.error is None] in (["y"], ["x", "y", "z"])


def test_a_value_that_python_cannot_hold_is_named_and_harms_no_other_row(tmp_path: Path) -> None:
    far = pa.array([0, 2**60, 1], pa.timestamp("ms"))
    rows = all_rows(parquet(tmp_path / "a.parquet", {"t": far, "a": ["x", "y", "z"]}))
    assert [row.values.get("a") for row in rows] == ["x", None, "z"]
    assert rows[1].error is not None
    assert rows[1].error.error_type == "bad_value"
    assert str(rows[1].error).startswith(f"{tmp_path / 'a.parquet'}, row 1: column 't' cannot be read: ")
