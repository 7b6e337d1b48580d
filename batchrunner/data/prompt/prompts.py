"""From a row to what it asks: its templates, the model's chat template, the row's sampling parameters."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import ValidationError

from batchrunner.data.prompt.fields import fields_text
from batchrunner.data.prompt.templates import Template, shortened
from batchrunner.errors import JobFileError, RowError
from batchrunner.spec.job import MAX_PRIORITY, JobSpec
from batchrunner.spec.sampling import SamplingParams
from batchrunner.spec.types import ColumnRef


class Encoder(Protocol):
    """The part of a tokenizer that prompts need. Two encoders with the same identity do the same."""

    @property
    def identity(self) -> str: ...
    def render_messages(self, messages: Sequence[dict[str, Any]]) -> str: ...
    def encode_prompts(self, texts: Sequence[str]) -> list[list[int]]: ...
    def encode_rendered(self, texts: Sequence[str]) -> list[list[int]]: ...


@dataclass(frozen=True, slots=True)
class Prompt:
    """What one row asks: a text that is ready to be tokenised, and sampling parameters; and how urgently."""

    text: str
    sampling: SamplingParams
    priority: int = 0


def compile_templates(job: JobSpec) -> list[Template]:
    """The templates of a job: its prompt's, or one for each message.

    Raises JobFileError if one does not compile, or if the job has fields and none uses them.
    """
    templates = _compiled(job)
    if job.fields is not None and not any("fields" in template.columns for template in templates):
        raise JobFileError(f"{job.name}: fields: no template uses them; write {{{{ fields }}}} where they should stand")
    return templates


def _compiled(job: JobSpec) -> list[Template]:
    if isinstance(job.prompt, str):
        return [Template(job.prompt, f"{job.name}: prompt")]
    if isinstance(job.messages, tuple):
        return [Template(m.content, f"{job.name}: messages[{i}].content") for i, m in enumerate(job.messages)]
    return []


class PromptBuilder:
    """Builds the prompt of each row of one job. Raises JobFileError if a template of the job does not compile.

    default: the parameters of a row that chooses none of its own.
    """

    def __init__(self, job: JobSpec, encoder: Encoder) -> None:
        self._job = job
        self._encoder = encoder
        self._templates = compile_templates(job)
        self._roles = [message.role for message in job.messages] if isinstance(job.messages, tuple) else []
        self._constants = job.sampling.constants()
        self._sampling_columns = job.sampling.columns()
        self.default = SamplingParams(**self._constants)

    @property
    def columns(self) -> list[str] | None:
        """The input columns that prompts and parameters need; None for all of them."""
        if any(template.uses_row for template in self._templates):
            return None
        names = set().union(*(template.columns for template in self._templates))
        if self._job.fields is not None:
            names = (names - {"fields"}).union(self._job.fields)
        values = (self._job.prompt, self._job.messages, self._job.priority)
        names |= {value.column for value in values if isinstance(value, ColumnRef)}
        return sorted(names.union(self._sampling_columns.values()))

    def build(self, values: dict[str, Any], field_order: Sequence[int] | None = None) -> Prompt:
        """field_order: the order of the job's fields in this row, as indices; None: the job's own.

        Raises RowError, saying what is wrong with the row.
        """
        sampling = self._sampling(values)
        text = self._text(self._with_fields(values, field_order))
        try:
            text.encode()
        except UnicodeEncodeError as error:  # a template can write "\\ud800"
            raise RowError("not_text", "the prompt holds half of a surrogate pair, which is no text") from error
        return Prompt(text, sampling, self._priority(values))

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of built prompts."""
        if self._job.messages is not None:
            return self._encoder.encode_rendered(texts)
        return self._encoder.encode_prompts(texts)

    def _with_fields(self, values: dict[str, Any], field_order: Sequence[int] | None) -> dict[str, Any]:
        fields = self._job.fields
        if fields is None:
            return values
        names = fields if field_order is None else [fields[index] for index in field_order]
        return {**values, "fields": fields_text(values, names)}

    def _text(self, values: dict[str, Any]) -> str:
        if isinstance(self._job.messages, ColumnRef):
            return self._encoder.render_messages(_messages_from(values, self._job.messages.column))
        if self._job.messages is not None:
            contents = [template.render(values) for template in self._templates]
            messages = [{"role": role, "content": text} for role, text in zip(self._roles, contents, strict=True)]
            return self._encoder.render_messages(messages)
        text = self._prompt_text(values)
        if not text.strip():
            raise RowError("empty_prompt", "the prompt is empty")
        return text

    def _prompt_text(self, values: dict[str, Any]) -> str:
        if self._templates:
            return self._templates[0].render(values)
        assert isinstance(self._job.prompt, ColumnRef)
        value = _column(values, self._job.prompt.column)
        if not isinstance(value, str):
            kind = type(value).__name__
            raise RowError(
                "not_text", f"column {self._job.prompt.column!r} holds a {kind}, not text: {shortened(value)}"
            )
        return value

    def _priority(self, values: dict[str, Any]) -> int:
        if not isinstance(self._job.priority, ColumnRef):
            return self._job.priority
        column = self._job.priority.column
        value = values.get(column)
        if value is None or value != value:  # null and NaN mean the default, as they do for sampling
            return 0
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or abs(value) > MAX_PRIORITY or int(value) != value:
            raise RowError(
                "bad_parameter",
                f"priority from column {column!r}: {shortened(value)}: should be a whole number from "
                f"{-MAX_PRIORITY:,} to {MAX_PRIORITY:,}",
            )
        return int(value)

    def _sampling(self, values: dict[str, Any]) -> SamplingParams:
        if not self._sampling_columns:
            return self.default
        chosen = {}
        for name, column in self._sampling_columns.items():
            value = values.get(column)
            # A key left out, null, and NaN, which is pandas' null, mean the default.
            if value is not None and value == value:
                chosen[name] = value
        try:
            return SamplingParams(**{**self._constants, **chosen})
        except ValidationError as error:
            problem = error.errors()[0]
            name = str(problem["loc"][0])
            column = self._sampling_columns.get(name, name)
            raise RowError(
                "bad_parameter",
                f"sampling.{name} from column {column!r}: {shortened(problem['input'])}: {problem['msg']}",
            ) from error


def _messages_from(values: dict[str, Any], column: str) -> list[dict[str, Any]]:
    messages = _column(values, column)
    if not isinstance(messages, list) or not messages or not all(isinstance(item, dict) for item in messages):
        raise RowError("bad_messages", f"column {column!r} is not a list of {{role, content}}: {shortened(messages)}")
    for item in messages:
        if not isinstance(item.get("role"), str) or not isinstance(item.get("content"), str):
            raise RowError("bad_messages", f"column {column!r}: role and content must be text: {shortened(item)}")
    return messages


def _column(values: dict[str, Any], column: str) -> Any:
    if column not in values:
        raise RowError("missing_column", f"there is no column {column!r}; the row has: {', '.join(values)}")
    if values[column] is None:
        raise RowError("null_value", f"column {column!r} is null")
    return values[column]
