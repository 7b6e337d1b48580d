"""The text that a template makes of a row, or what is wrong with the row."""

import datetime
import decimal
from typing import Any

import pytest

from batchrunner.data.prompt.prompts import compile_templates
from batchrunner.errors import JobFileError
from batchrunner.spec.job import JobSpec
from tests.data.prompt.prompts import builder, render, row_error


@pytest.mark.parametrize(
    ("source", "values", "text"),
    [
        ("plain text\n", {}, "plain text\n"),
        ("{{ a }}", {"a": "x"}, "x"),
        ("{{ a }}\n", {"a": "x"}, "x\n"),
        ("{{ a }}", {"a": "{{ b }}"}, "{{ b }}"),
        ("{{ a }} & <b>", {"a": "<i>"}, "<i> & <b>"),
        ("n={{ n }} f={{ f }} b={{ b }}", {"n": 1, "f": 0.5, "b": True}, "n=1 f=0.5 b=True"),
        ("{{ n | string }}", {"n": 5}, "5"),
        ("on {{ d }}", {"d": datetime.date(2020, 1, 2)}, "on 2020-01-02"),
        ("{{ d }} EUR", {"d": decimal.Decimal("1.50")}, "1.50 EUR"),
        ("{{ row['my col'] }}", {"my col": "x"}, "x"),
        ("{{ row.a }}", {"a": "x"}, "x"),
        ("{{ a.b[0] }}", {"a": {"b": ["x"]}}, "x"),
        ("{{ a | tojson }}", {"a": [1, "x"]}, '[1, "x"]'),
        ("{{ a or 'none' }}", {"a": None}, "none"),
        ("{{ a | default('none') }}", {}, "none"),
        ("{% if a is defined %}y{% else %}n{% endif %}", {}, "n"),
        ("{% for x in a %}{{ x }};{% endfor %}", {"a": ["p", "q"]}, "p;q;"),
        ("{% for i in range(3) %}{{ i }}{% endfor %}", {}, "012"),
        ("{{ a }} Grüße 你好 🎉", {"a": "é"}, "é Grüße 你好 🎉"),
        ("{{ row }}", {"row": "a column named row"}, "a column named row"),
        ("{{ 2 * 3 }} {{ 'ab' * 2 }} {{ 2 ** 10 }}", {}, "6 abab 1024"),
    ],
)
def test_a_template_is_filled_in_from_the_row(source: str, values: dict[str, Any], text: str) -> None:
    assert render(source, **values) == text


@pytest.mark.parametrize(
    ("source", "values", "error_type", "message"),
    [
        ("{{ b }}", {"a": "x", "c": "y"}, "missing_column", "'b' is undefined; the row has: a, c"),
        ("{{ b.c }}", {"a": "x"}, "missing_column", "'b' is undefined; the row has: a"),
        (
            "{{ row['my col'] }}",
            {"a": "x"},
            "missing_column",
            "'dict object' has no attribute 'my col'; the row has: a",
        ),
        ("{% if b %}{% endif %}", {}, "missing_column", "'b' is undefined; the row has: "),
        ("a: {{ a }}", {"a": None, "z": None}, "null_value", "null in a, which the template prints"),
        ("{{ a }}{{ b }}", {"a": "x", "b": None}, "null_value", "null in b, which the template prints"),
        ("{{ row['a b'] }}", {"a b": None}, "null_value", "null in a b, which the template prints"),
        ("{{ none }}", {"a": "x"}, "null_value", "null in a value, which the template prints"),
        ("{{ a.b }}", {"a": {"b": None}}, "null_value", "null in a value, which the template prints"),
        ("x {{ a }}", {"a": [1]}, "not_text", "the template prints a list: [1] (use | tojson, or a part of it)"),
        (
            "x {{ a }}",
            {"a": {"b": 1}},
            "not_text",
            "the template prints a dict: {'b': 1} (use | tojson, or a part of it)",
        ),
        (
            "x {{ a }}",
            {"a": b"\xff"},
            "not_text",
            "the template prints a bytes: b'\\xff' (use | tojson, or a part of it)",
        ),
        ("{{ [1] }}", {}, "not_text", "the template prints a list: [1] (use | tojson, or a part of it)"),
        ("{{ 1 / n }}", {"n": 0}, "template_error", "the template fails on this row: division by zero"),
        ("{% include 'other' %}", {}, "template_error", "the template fails on this row: no loader"),
    ],
)
def test_a_row_that_does_not_fit_its_template_is_told_why(
    source: str, values: dict[str, Any], error_type: str, message: str
) -> None:
    error = row_error(source, **values)
    assert error.error_type == error_type
    assert str(error).startswith(message)


def test_the_line_of_a_mistake_is_named() -> None:
    with pytest.raises(JobFileError, match=r"No filter named 'nope'\. \(line 2\)$"):
        builder(prompt="a\n{{ a | nope }}")


@pytest.mark.parametrize(
    ("value", "kind"), [(5, "int"), (0.5, "float"), (True, "bool"), ([1], "list"), ({"a": 1}, "dict"), (b"x", "bytes")]
)
def test_a_column_that_is_the_whole_prompt_must_be_text(value: Any, kind: str) -> None:
    error = row_error("{{ a }}", a=value)
    assert error.error_type == "not_text"
    assert (
        str(error) == f"column 'a' holds a {kind}, not text: {value!r} (put it into a sentence, or name a text column)"
    )


def test_a_long_value_is_cut_in_the_message() -> None:
    assert "x" * 60 not in str(row_error("{{ a }}", a=["x" * 200]))[90:]
    assert len(str(row_error("{{ a }}", a=["x" * 200]))) < 200


@pytest.mark.parametrize("source", ["{% for", "{{ a", "{{ a | nope }}", "{% endif %}", "{% block x %}", "{{ 'a }}"])
def test_a_template_that_does_not_compile_is_a_mistake_in_the_job_file(source: str) -> None:
    with pytest.raises(JobFileError, match=r"^job: prompt: the template does not compile: "):
        builder(prompt=source)


def test_the_message_whose_template_does_not_compile_is_named() -> None:
    messages = [{"role": "system", "content": "fine"}, {"role": "user", "content": "{% if %}"}]
    with pytest.raises(JobFileError, match=r"^job: messages\[1\]\.content: the template does not compile"):
        builder(messages=messages)


@pytest.mark.parametrize(
    "source", ["{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", "{{ " + "-" * 3000 + "1 }}"], ids="(-"
)
def test_a_template_nested_too_deeply_does_not_compile(source: str) -> None:
    with pytest.raises(JobFileError):
        builder(prompt=source)


def test_a_job_without_templates_has_none_to_compile() -> None:
    job = JobSpec.model_validate({"name": "j", "input": "i", "output": "o", "prompt": {"column": "p"}})
    assert compile_templates(job) == []


@pytest.mark.parametrize("name", ["range", "dict", "cycler", "joiner", "namespace", "lipsum"])
def test_a_column_may_have_the_name_of_a_jinja_function(name: str) -> None:
    found = builder(prompt=f"{{{{ {name} }}}}")
    assert found.columns == [name]
    assert found.build({name: "x"}).text == "x"


@pytest.mark.parametrize("source", ["{{ a.upper }}", "x {{ row.values }}", "{{ range }}", "{{ namespace() }}"])
def test_what_is_neither_text_nor_number_is_not_printed(source: str) -> None:
    assert row_error(source, a="x", values="y").error_type in ("not_text", "missing_column")
