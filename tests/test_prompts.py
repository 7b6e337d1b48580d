"""Templates, messages and sampling parameters of one row, and that no row or template can do harm."""

import datetime
import decimal
from collections.abc import Sequence
from typing import Any

import pytest

from batchrunner.data import sandbox
from batchrunner.data.prompts import Prompt, PromptBuilder, compile_templates
from batchrunner.data.templates import Template
from batchrunner.errors import JobFileError, RowError
from batchrunner.spec import JobSpec, SamplingParams


class LetterEncoder:
    """Token ids are code points; messages become lines of `role: content`."""

    def encode_prompt(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    def encode_messages(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        return self.encode_prompt("".join(f"{message['role']}: {message['content']}\n" for message in messages))


def builder(**changes: Any) -> PromptBuilder:
    fields: dict[str, Any] = {"name": "job", "input": "i.jsonl", "output": "o", **changes}
    if "messages" not in fields:
        fields.setdefault("prompt", "{{ text }}")
    return PromptBuilder(JobSpec.model_validate(fields), LetterEncoder())


def text_of(prompt: Prompt) -> str:
    return "".join(map(chr, prompt.token_ids))


def render(source: str, /, **values: Any) -> str:
    return Template(source, "job: prompt").render(values)


def row_error(source: str, /, **values: Any) -> RowError:
    template = Template(source, "job: prompt")
    with pytest.raises(RowError) as caught:
        template.render(values)
    return caught.value


# --- templates ------------------------------------------------------------------------------------------------------


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
    assert text_of(found.build({name: "x"})) == "x"


@pytest.mark.parametrize("source", ["{{ a.upper }}", "x {{ row.values }}", "{{ range }}", "{{ namespace() }}"])
def test_what_is_neither_text_nor_number_is_not_printed(source: str) -> None:
    assert row_error(source, a="x", values="y").error_type in ("not_text", "missing_column")


# --- the sandbox ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__ }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ a['__class__'] }}",
        "{{ a | attr('__class__') }}",
        "{{ a.__init__.__globals__ }}",
        "{{ '{0.__class__}'.format(a) }}",
        "{{ '{x.__class__}'.format_map({'x': a}) }}",
        "{{ l.append(1) }}",
        "{{ l.clear() }}",
        "{{ d.update({'x': 1}) }}",
        "{{ row.pop('a') }}",
        "{{ range.__globals__ }}",
    ],
)
def test_a_template_can_neither_reach_out_nor_change_the_row(source: str) -> None:
    values: dict[str, Any] = {"a": "x", "l": [1], "d": {}}
    assert row_error(source, **values).error_type == "template_error"
    assert values == {"a": "x", "l": [1], "d": {}}


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 10**10 }}",
        "{{ 10**10 * 'a' }}",
        "{{ a * 10000000000 }}",
        "{{ [1] * 10**9 }}",
        "{{ l * 10**9 }}",
        "{{ (1, 2) * 10**9 }}",
        "{{ 2 ** 1001 }}",
        "{{ 0.5 ** -1001 }}",
        "{{ (10 ** 900) ** 900 }}",
        "{% for i in range(10**9) %}{% endfor %}",
    ],
)
def test_a_template_cannot_make_a_giant_value(source: str) -> None:
    assert row_error(source, a="x", l=[1]).error_type == "template_error"


def test_output_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MAX_PROMPT_CHARS", 1000)
    assert len(render("{% for i in range(1000) %}x{% endfor %}")) == 1000
    error = row_error("{% for i in range(1001) %}x{% endfor %}")
    assert error.error_type == "prompt_too_large"
    assert "over 1,000 characters" in str(error)
    assert row_error("{{ a }}{{ a }}", a="x" * 600).error_type == "prompt_too_large"


def test_repetition_is_bounded_by_the_longest_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MAX_PROMPT_CHARS", 1000)
    assert render("{{ 'ab' * 500 }}") == "ab" * 500
    assert row_error("{{ 'ab' * 501 }}").error_type == "template_error"


class Clock:
    """Every look at it takes a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 1
        return self.now


def test_rendering_time_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "time", Clock())
    error = row_error("{% for i in range(100) %}x{% endfor %}")
    assert error.error_type == "prompt_too_large"
    assert "took over 10 s" in str(error)


def test_a_loop_that_prints_nothing_is_stopped_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MAX_RENDER_SECONDS", 0.0)
    steps = []

    class Counted(list[int]):
        def __len__(self) -> int:
            steps.append(1)
            return 0

    with pytest.raises(RowError):
        Template("{% for i in range(200) %}{% if a | length %}{% endif %}{% endfor %}x", "job").render({"a": Counted()})
    assert len(steps) < 200


@pytest.mark.parametrize(
    "source",
    [
        "{{ ('%100000d' % n) | length }}",
        "{{ '{:>100000}'.format(n) | length }}",
        "{{ n | string | center(100000) | length }}",
        "{{ range(10000) | join('aaaaaaaaaa') | length }}",
        "{% set s = namespace(x='a') %}{% for i in range(17) %}{% set s.x = s.x ~ s.x %}{% endfor %}{{ s.x | length }}",
    ],
)
def test_no_operation_makes_a_text_longer_than_a_prompt(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MAX_PROMPT_CHARS", 1000)
    row_error(source, n=1)


def test_an_endless_recursion_is_an_error_of_the_row() -> None:
    assert row_error("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}").error_type == "template_error"


@pytest.mark.parametrize(
    "source",
    [
        "{{ 1.5 | round(10**9, 'ceil') }}",
        "{{ 'x' | indent(10**9) }}",
        "{{ 'x'.ljust(10**9) }}",
        "{{ 'x'.replace('', 'y' * 10**7) }}",
        "{{ ','.join(['x' * 10**7] * 10**6) }}",
        "{{ '%*d' % (10**9, 1) }}",
        "{{ '{:{}}'.format(1, 10**9) }}",
        "{{ [1] | batch(10**9, 0) | list }}",
        "{% set z %}{% for i in range(100000) %}{{ a }}{% endfor %}{% endset %}{{ z | length }}",
        "{% set s = namespace(x=3) %}{% for i in range(99) %}{% set s.x = s.x * s.x %}{% endfor %}{{ s.x }}",
        "{% set s = namespace(x=a) %}{% for i in range(99) %}{% set s.x = [s.x, s.x] %}{% endfor %}{{ s.x | string }}",
    ],
)
def test_what_is_too_large_is_refused_before_it_is_made(source: str) -> None:
    assert row_error(source, a="x" * 10**6).error_type == "template_error"


def test_what_is_made_for_a_row_is_bounded_in_total() -> None:
    source = "{% set s = namespace(x=[]) %}{% for i in range(99999) %}{% set s.x = s.x + [a[i:]] %}{% endfor %}"
    assert row_error(source, a="x" * 10**6).error_type == "prompt_too_large"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ '100 % of {} in 20000000 steps'.format(30000000) }}", "100 % of 30000000 in 20000000 steps"),
        ("{{ '%s: %5.2f|%-4d|' % ('x', 1.5, 7) }}", "x:  1.50|7   |"),
        ("{{ a | map('upper') | join('-') }} {{ ', '.join(a) }} {{ a[:1][0] ~ 5 ~ a[1] }}", "P-Q p, q p5q"),
        (
            "{{ 'x' | center(5) }}|{{ 'a\nb' | indent(width='> ') }}|{{ 'aXb' | replace('X', '--') }}",
            "  x  |a\n> b|a--b",
        ),
        ("{% macro m(x) %}[{{ x }}{{ caller() }}]{% endmacro %}{% call m('p') %}in{% endcall %}", "[pin]"),
        ("{% for x in t recursive %}{{ x.n }}{{ loop.length }}{{ loop(x.c) }}{% endfor %}", "1121"),
        ("{% for k, v in t[0].items() %}{{ k }}{% if not loop.last %},{% endif %}{% endfor %}", "n,c"),
        ("{{ t | tojson(indent=1) | length }} {{ [3, 1] | sort | join }} {{ 1.25 | round(1) }}", "66 13 1.2"),
        ("{{ n | default(20000000) }} {{ 'abc' | truncate(20000000) }}", "20000000 abc"),
    ],
)
def test_the_bounds_are_in_nobodys_way(source: str, text: str) -> None:
    tree = [{"n": 1, "c": [{"n": 2, "c": []}]}]
    assert render(source, a=["p", "q"], t=tree) == text


def test_a_template_beyond_the_limits_of_python_does_not_compile() -> None:
    with pytest.raises(JobFileError, match="beyond a limit of Python: too many statically nested blocks"):
        builder(prompt="{% for i in a %}" * 25 + "{% endfor %}" * 25)


# --- prompts and messages -------------------------------------------------------------------------------------------


def test_a_prompt_is_rendered_and_encoded() -> None:
    prompt = builder(prompt="Q: {{ text }}").build({"text": "hi", "other": 1})
    assert text_of(prompt) == "Q: hi"
    assert prompt.sampling == SamplingParams()


@pytest.mark.parametrize("text", ["", " ", "\n\t  \u2003"])
@pytest.mark.parametrize("source", ["{{ text }}", {"column": "text"}])
def test_a_blank_prompt_is_an_error_row(source: Any, text: str) -> None:
    with pytest.raises(RowError, match=r"^the prompt is empty$") as caught:
        builder(prompt=source).build({"text": text})
    assert caught.value.error_type == "empty_prompt"


def test_a_prompt_from_a_column_is_taken_as_it_is() -> None:
    assert text_of(builder(prompt={"column": "p"}).build({"p": " {{ x }} \n"})) == " {{ x }} \n"


@pytest.mark.parametrize(
    ("values", "error_type", "message"),
    [
        ({"a": 1, "b": 2}, "missing_column", "there is no column 'p'; the row has: a, b"),
        ({"p": None}, "null_value", "column 'p' is null"),
        ({"p": 3}, "not_text", "column 'p' holds a int, not text: 3"),
        ({"p": ["x"]}, "not_text", "column 'p' holds a list, not text: ['x']"),
    ],
)
def test_a_prompt_column_must_hold_text(values: dict[str, Any], error_type: str, message: str) -> None:
    with pytest.raises(RowError) as caught:
        builder(prompt={"column": "p"}).build(values)
    assert (caught.value.error_type, str(caught.value)) == (error_type, message)


def test_messages_are_rendered_each_on_its_own() -> None:
    messages = [{"role": "system", "content": "Be {{ how }}."}, {"role": "user", "content": "{{ text }}"}]
    prompt = builder(messages=messages).build({"how": "brief", "text": "hi"})
    assert text_of(prompt) == "system: Be brief.\nuser: hi\n"


def test_messages_from_a_column_are_handed_on_as_they_are() -> None:
    messages = [{"role": "user", "content": "{{ x }}"}, {"role": "assistant", "content": ""}]
    assert text_of(builder(messages={"column": "m"}).build({"m": messages})) == "user: {{ x }}\nassistant: \n"


@pytest.mark.parametrize(
    ("value", "error_type"),
    [
        (None, "null_value"),
        ([], "bad_messages"),
        ("hi", "bad_messages"),
        (["hi"], "bad_messages"),
        ({"role": "user", "content": "x"}, "bad_messages"),
        ([{"role": "user"}], "bad_messages"),
        ([{"role": "user", "content": None}], "bad_messages"),
        ([{"role": 1, "content": "x"}], "bad_messages"),
        ([{"role": "user", "content": "x"}, {"role": "user", "content": [{"type": "text"}]}], "bad_messages"),
    ],
)
def test_a_messages_column_must_hold_messages(value: Any, error_type: str) -> None:
    with pytest.raises(RowError, match="column 'm'") as caught:
        builder(messages={"column": "m"}).build({"m": value})
    assert caught.value.error_type == error_type


def test_a_missing_messages_column_is_told() -> None:
    with pytest.raises(RowError, match="there is no column 'm'; the row has: a") as caught:
        builder(messages={"column": "m"}).build({"a": 1})
    assert caught.value.error_type == "missing_column"


# --- sampling -------------------------------------------------------------------------------------------------------


def test_constant_parameters_hold_for_every_row() -> None:
    found = builder(sampling={"max_tokens": 5, "temperature": 0.5})
    assert found.build({"text": "x"}).sampling == SamplingParams(max_tokens=5, temperature=0.5)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("max_tokens", 3, 3),
        ("max_tokens", 1.0, 1),
        ("max_tokens", decimal.Decimal("2"), 2),
        ("max_tokens", None, 256),
        ("max_tokens", float("nan"), 256),
        ("temperature", 1, 1.0),
        ("seed", 2**63 - 1, 2**63 - 1),
        ("stop", "END", ("END",)),
        ("stop", ["a", "b"], ("a", "b")),
        ("stop", None, ()),
        ("stop_token_ids", [1, 2.0], (1, 2)),
        ("ignore_eos", True, True),
    ],
)
def test_a_parameter_comes_from_its_column(name: str, value: Any, expected: Any) -> None:
    sampling = builder(sampling={name: {"column": "c"}}).build({"text": "x", "c": value}).sampling
    assert getattr(sampling, name) == expected
    assert type(getattr(sampling, name)) is type(expected)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 1.5),
        ("max_tokens", "abc"),
        ("max_tokens", 0),
        ("max_tokens", float("inf")),
        ("max_tokens", [1]),
        ("temperature", -0.1),
        ("temperature", float("inf")),
        ("top_p", 0),
        ("top_p", 1.1),
        ("min_p", 1.0),
        ("seed", 2**63),
        ("seed", -1),
        ("stop", ""),
        ("stop", ["a", None]),
        ("stop_token_ids", [1.5]),
    ],
)
def test_a_parameter_that_cannot_be_used_is_an_error_of_the_row(name: str, value: Any) -> None:
    with pytest.raises(RowError, match=f"^sampling.{name} from column 'c': ") as caught:
        builder(sampling={name: {"column": "c"}}).build({"text": "x", "c": value})
    assert caught.value.error_type == "bad_parameter"


def test_a_parameter_that_a_row_leaves_out_is_the_default() -> None:
    assert builder(sampling={"seed": {"column": "c"}}).build({"text": "x"}).sampling == SamplingParams()


def test_columns_and_constants_go_together() -> None:
    found = builder(sampling={"max_tokens": {"column": "n"}, "temperature": 0.7, "seed": {"column": "s"}})
    sampling = found.build({"text": "x", "n": 4, "s": None}).sampling
    assert sampling == SamplingParams(max_tokens=4, temperature=0.7, seed=0)


# --- which columns are needed ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "columns"),
    [
        ({"prompt": "plain"}, []),
        ({"prompt": "{{ b }} {{ a.x }} {% if c %}{% endif %}"}, ["a", "b", "c"]),
        ({"prompt": "{% set x = a %}{{ x }}{% for i in b %}{{ i }}{{ loop.index }}{% endfor %}"}, ["a", "b"]),
        ({"prompt": "{{ row['my col'] }}"}, None),
        ({"prompt": {"column": "p"}}, ["p"]),
        ({"messages": {"column": "m"}}, ["m"]),
        ({"messages": [{"role": "user", "content": "{{ b }}"}, {"role": "user", "content": "{{ a }}"}]}, ["a", "b"]),
        ({"messages": [{"role": "user", "content": "{{ a }}"}, {"role": "user", "content": "{{ row }}"}]}, None),
        ({"prompt": "{{ a }}", "sampling": {"seed": {"column": "s"}, "top_k": {"column": "a"}}}, ["a", "s"]),
        ({"prompt": "{{ row.a }}", "sampling": {"seed": {"column": "s"}}}, None),
    ],
)
def test_the_columns_a_job_needs_are_known_before_reading(changes: dict[str, Any], columns: list[str] | None) -> None:
    assert builder(**changes).columns == columns
