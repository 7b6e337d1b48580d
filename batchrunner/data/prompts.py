"""From a row to token ids: templates in a sandbox, the model's chat template, the row's sampling parameters."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol

import jinja2
from jinja2 import meta, nodes
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import ValidationError

from batchrunner.errors import JobFileError, RowError
from batchrunner.spec import ColumnRef, JobSpec, SamplingParams

MAX_PROMPT_CHARS = 16_000_000
MAX_RENDER_SECONDS = 10.0


class Encoder(Protocol):
    """The part of a tokenizer that prompts need."""

    def encode_prompt(self, text: str) -> list[int]: ...
    def encode_messages(self, messages: Sequence[dict[str, Any]]) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class Prompt:
    """What one row asks: token ids and sampling parameters."""

    token_ids: list[int]
    sampling: SamplingParams


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's immutable sandbox, in which a template cannot make a giant string or number either."""

    intercepted_binops = frozenset(["*", "**"])

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        sizes = [len(v) if isinstance(v, str | bytes | list | tuple) else v for v in (left, right)]
        if all(isinstance(size, int | float) for size in sizes):
            is_repetition = any(isinstance(v, str | bytes | list | tuple) for v in (left, right))
            is_too_long = is_repetition and sizes[0] * sizes[1] > MAX_PROMPT_CHARS
            if is_too_long or (operator == "**" and abs(sizes[1]) > 1000):
                raise SecurityError(f"{operator!r} would make a value too large for a prompt")
        return super().call_binop(context, operator, left, right)


class Template:
    """One compiled template. Raises JobFileError if it does not compile."""

    def __init__(self, source: str, where: str) -> None:
        environment = _Sandbox(undefined=jinja2.StrictUndefined, finalize=_printable, keep_trailing_newline=True)
        try:
            tree = environment.parse(source)
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise JobFileError(f"{where}: the template does not compile: {error}") from error
        self.columns = frozenset(meta.find_undeclared_variables(tree)) - {"row"}
        self.uses_row = "row" in meta.find_undeclared_variables(tree)
        self._only_column = _only_column(tree)

    def render(self, values: dict[str, Any]) -> str:
        """Raises RowError: missing column, null, a value that is no text."""
        if self._only_column is not None and self._only_column in values:
            value = values[self._only_column]
            if value is not None and not isinstance(value, str):
                raise RowError(
                    "not_text",
                    f"column {self._only_column!r} holds a {type(value).__name__}, not text: {_short(value)} "
                    f"(write {{{{ {self._only_column} | string }}}} to use it as text)",
                )
        started = time.monotonic()
        pieces: list[str] = []
        num_chars = 0
        try:
            for piece in self._template.generate({"row": values, **values}):
                pieces.append(piece)
                num_chars += len(piece)
                if num_chars > MAX_PROMPT_CHARS or time.monotonic() - started > MAX_RENDER_SECONDS:
                    raise RowError(
                        "prompt_too_large",
                        f"the template made over {MAX_PROMPT_CHARS:,} characters or took over {MAX_RENDER_SECONDS:g} s",
                    )
        except jinja2.UndefinedError as error:
            raise RowError("missing_column", f"{error.message}; the row has: {', '.join(values)}") from error
        except _NullError as error:
            nulls = [name for name in values if values[name] is None and (self.uses_row or name in self.columns)]
            where = ", ".join(nulls) or "a value"
            raise RowError("null_value", f"null in {where}, which the template prints") from error
        except (jinja2.TemplateError, ArithmeticError, TypeError, ValueError, LookupError, AttributeError) as error:
            raise RowError("template_error", f"the template fails on this row: {error}") from error
        return "".join(pieces)


def compile_templates(job: JobSpec) -> list[Template]:
    """The templates of a job: its prompt's, or one for each message. Raises JobFileError if one does not compile."""
    if isinstance(job.prompt, str):
        return [Template(job.prompt, f"{job.name}: prompt")]
    if isinstance(job.messages, tuple):
        return [Template(m.content, f"{job.name}: messages[{i}].content") for i, m in enumerate(job.messages)]
    return []


class PromptBuilder:
    """Builds the prompt of each row of one job. Raises JobFileError if a template of the job does not compile."""

    def __init__(self, job: JobSpec, encoder: Encoder) -> None:
        self._job = job
        self._encoder = encoder
        templates = compile_templates(job)
        self._prompt = templates[0] if isinstance(job.prompt, str) else None
        self._messages: list[tuple[str, Template]] = []
        if isinstance(job.messages, tuple):
            self._messages = list(zip([message.role for message in job.messages], templates, strict=True))
        self._constants = job.sampling.constants()
        self._sampling_columns = job.sampling.columns()
        self._default = SamplingParams(**self._constants)

    @property
    def columns(self) -> list[str] | None:
        """The input columns that prompts and parameters need; None for all of them."""
        templates = [self._prompt] if self._prompt else [template for _, template in self._messages]
        if any(template.uses_row for template in templates):
            return None
        names = set(self._sampling_columns.values()).union(*(template.columns for template in templates))
        names |= {ref.column for ref in (self._job.prompt, self._job.messages) if isinstance(ref, ColumnRef)}
        return sorted(names)

    def build(self, values: dict[str, Any]) -> Prompt:
        """Raises RowError, saying what is wrong with the row."""
        sampling = self._sampling(values)
        if isinstance(self._job.messages, ColumnRef):
            token_ids = self._encoder.encode_messages(_messages_from(values, self._job.messages.column))
        elif self._messages:
            messages = [{"role": role, "content": template.render(values)} for role, template in self._messages]
            token_ids = self._encoder.encode_messages(messages)
        else:
            text = self._prompt_text(values)
            if not text.strip():
                raise RowError("empty_prompt", "the prompt is empty")
            token_ids = self._encoder.encode_prompt(text)
        return Prompt(token_ids, sampling)

    def _prompt_text(self, values: dict[str, Any]) -> str:
        if self._prompt is not None:
            return self._prompt.render(values)
        assert isinstance(self._job.prompt, ColumnRef)
        value = _column(values, self._job.prompt.column)
        if not isinstance(value, str):
            kind = type(value).__name__
            raise RowError("not_text", f"column {self._job.prompt.column!r} holds a {kind}, not text: {_short(value)}")
        return value

    def _sampling(self, values: dict[str, Any]) -> SamplingParams:
        if not self._sampling_columns:
            return self._default
        chosen = {}
        for name, column in self._sampling_columns.items():
            value = values.get(column)
            if column not in values:
                raise RowError("missing_column", f"sampling.{name}: there is no column {column!r}")
            if value is not None and value == value:  # null and NaN, pandas' null, mean the default
                chosen[name] = value
        try:
            return SamplingParams(**{**self._constants, **chosen})
        except ValidationError as error:
            problem = error.errors()[0]
            name = str(problem["loc"][0])
            column = self._sampling_columns.get(name, name)
            raise RowError(
                "bad_parameter", f"sampling.{name} from column {column!r}: {_short(problem['input'])}: {problem['msg']}"
            ) from error


class _NullError(Exception):
    pass


def _printable(value: Any) -> Any:
    """What a template prints: text, numbers, booleans, dates. Null or a whole structure is a mistake in the row."""
    if value is None:
        raise _NullError
    if isinstance(value, jinja2.Undefined | str | int | float | Decimal):
        return value
    if isinstance(value, dict | list | tuple | bytes):
        kind = type(value).__name__
        raise RowError("not_text", f"the template prints a {kind}: {_short(value)} (use | tojson, or a part of it)")
    return value


def _only_column(tree: nodes.Template) -> str | None:
    """The column's name if the whole template is `{{ column }}`."""
    if len(tree.body) == 1 and isinstance(tree.body[0], nodes.Output):
        parts = tree.body[0].nodes
        if len(parts) == 1 and isinstance(parts[0], nodes.Name):
            return parts[0].name
    return None


def _messages_from(values: dict[str, Any], column: str) -> list[dict[str, Any]]:
    messages = _column(values, column)
    if not isinstance(messages, list) or not messages or not all(isinstance(item, dict) for item in messages):
        raise RowError("bad_messages", f"column {column!r} is not a list of {{role, content}}: {_short(messages)}")
    for item in messages:
        if not isinstance(item.get("role"), str) or not isinstance(item.get("content"), str):
            raise RowError("bad_messages", f"column {column!r}: role and content must be text: {_short(item)}")
    return messages


def _column(values: dict[str, Any], column: str) -> Any:
    if column not in values:
        raise RowError("missing_column", f"there is no column {column!r}; the row has: {', '.join(values)}")
    if values[column] is None:
        raise RowError("null_value", f"column {column!r} is null")
    return values[column]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…"
