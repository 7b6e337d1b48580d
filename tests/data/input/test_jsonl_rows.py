"""Lines become rows: however they end, with their place, and a bad one harms no other."""

import json
from pathlib import Path

import pytest

from batchrunner.data.input import rows as rows_module
from batchrunner.data.input.rows import read_rows
from batchrunner.data.input.sources import InputFile
from batchrunner.errors import DataError
from tests.data.input.input_files import all_rows, jsonl, parquet, values_of


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


@pytest.mark.parametrize("name", ["gone.jsonl", "gone.jsonl.gz", "gone.jsonl.zst"])
def test_a_text_file_that_has_vanished_is_an_error_with_its_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=name):
        all_rows(InputFile(tmp_path / name, "jsonl"))
