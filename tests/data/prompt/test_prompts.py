"""What a row asks: its prompt or messages, its sampling parameters, and the columns that these need."""

import decimal
from typing import Any

import pytest

from batchrunner.errors import RowError
from batchrunner.spec.sampling import SamplingParams
from tests.data.prompt.prompts import builder
from tests.data.spools import LetterEncoder


def test_a_prompt_is_rendered_and_encoded() -> None:
    prompt = builder(prompt="Q: {{ text }}").build({"text": "hi", "other": 1})
    assert prompt.text == "Q: hi"
    assert prompt.sampling == SamplingParams()


@pytest.mark.parametrize("text", ["", " ", "\n\t  \u2003"])
@pytest.mark.parametrize("source", ["{{ text }}", {"column": "text"}])
def test_a_blank_prompt_is_an_error_row(source: Any, text: str) -> None:
    with pytest.raises(RowError, match=r"^the prompt is empty$") as caught:
        builder(prompt=source).build({"text": text})
    assert caught.value.error_type == "empty_prompt"


def test_a_prompt_from_a_column_is_taken_as_it_is() -> None:
    assert builder(prompt={"column": "p"}).build({"p": " {{ x }} \n"}).text == " {{ x }} \n"


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
    assert prompt.text == "system: Be brief.\nuser: hi\n"


def test_messages_from_a_column_are_handed_on_as_they_are() -> None:
    messages = [{"role": "user", "content": "{{ x }}"}, {"role": "assistant", "content": ""}]
    assert builder(messages={"column": "m"}).build({"m": messages}).text == "user: {{ x }}\nassistant: \n"


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


def test_half_of_a_surrogate_pair_is_an_error_of_the_row() -> None:
    with pytest.raises(RowError, match="half of a surrogate pair") as caught:
        builder(prompt="{{ '\\ud800' }}{{ text }}").build({"text": "x"})
    assert caught.value.error_type == "not_text"


def test_the_encoder_is_asked_for_prompts_or_for_rendered_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LetterEncoder, "encode_prompts", lambda self, texts: [[1] for _ in texts])
    monkeypatch.setattr(LetterEncoder, "encode_rendered", lambda self, texts: [[2] for _ in texts])
    assert builder(prompt="{{ text }}").encode(["a", "b"]) == [[1], [1]]
    assert builder(prompt={"column": "p"}).encode(["a"]) == [[1]]
    assert builder(messages=[{"role": "user", "content": "x"}]).encode(["a"]) == [[2]]
    assert builder(messages={"column": "m"}).encode(["a"]) == [[2]]


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
