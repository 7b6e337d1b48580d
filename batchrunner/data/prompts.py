"""From a row to token ids: its templates, the model's chat template, the row's sampling parameters."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import ValidationError

from batchrunner.data.templates import Template, shortened
from batchrunner.errors import RowError
from batchrunner.spec import MAX_PRIORITY, ColumnRef, JobSpec, SamplingParams


class Encoder(Protocol):
    """The part of a tokenizer that prompts need."""

    def encode_prompt(self, text: str) -> list[int]: ...
    def encode_messages(self, messages: Sequence[dict[str, Any]]) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class Prompt:
    """What one row asks: token ids and sampling parameters; and how urgently."""

    token_ids: list[int]
    sampling: SamplingParams
    priority: int = 0


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
        values = (self._job.prompt, self._job.messages, self._job.priority)
        names |= {value.column for value in values if isinstance(value, ColumnRef)}
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
        return Prompt(token_ids, sampling, self._priority(values))

    def _prompt_text(self, values: dict[str, Any]) -> str:
        if self._prompt is not None:
            return self._prompt.render(values)
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
            return self._default
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
