"""Templates and prompt builders of jobs that consist of little else."""

from typing import Any

import pytest

from batchrunner.data.prompt.prompts import PromptBuilder
from batchrunner.data.prompt.templates import Template
from batchrunner.errors import RowError
from batchrunner.spec.job import JobSpec
from tests.data.spools import LetterEncoder


def builder(**changes: Any) -> PromptBuilder:
    fields: dict[str, Any] = {"name": "job", "input": "i.jsonl", "output": "o", **changes}
    if "messages" not in fields:
        fields.setdefault("prompt", "{{ text }}")
    return PromptBuilder(JobSpec.model_validate(fields), LetterEncoder())


def render(source: str, /, **values: Any) -> str:
    return Template(source, "job: prompt").render(values)


def row_error(source: str, /, **values: Any) -> RowError:
    template = Template(source, "job: prompt")
    with pytest.raises(RowError) as caught:
        template.render(values)
    return caught.value
