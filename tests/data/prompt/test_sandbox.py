"""No row and no template can do harm."""

from typing import Any

import pytest

from batchrunner.data.prompt import sandbox
from batchrunner.data.prompt.templates import Template
from batchrunner.errors import JobFileError, RowError
from tests.data.prompt.prompts import builder, render, row_error


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
