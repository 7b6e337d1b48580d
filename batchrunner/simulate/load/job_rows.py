"""The rows of a job file as the simulator takes them: read, rendered and tokenised as `batchrun submit` does."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

from batchrunner.data.input.rows import Row, read_rows
from batchrunner.data.input.sources import find_inputs
from batchrunner.data.prompt.prompts import Encoder, Prompt, PromptBuilder
from batchrunner.engine.model.model_files import find_model, local_path
from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.predictors.predictor import TextOf
from batchrunner.errors import RowError
from batchrunner.identity import question_digest
from batchrunner.simulate.load.lengths import Lengths
from batchrunner.simulate.load.loads import SimRow
from batchrunner.spec.job import JobFile, JobSpec
from batchrunner.spec.sampling import SamplingParams


@dataclass(frozen=True, slots=True)
class JobRows:
    """num_failed: rows that cannot be asked. num_equal: rows that ask what an earlier one asks, answered once. text_of:
    None for rows without text."""

    rows: list[SimRow]
    num_failed: int = 0
    num_equal: int = 0
    text_of: TextOf | None = None


def read_job_rows(job_file: JobFile, lengths: Lengths | None, num_rows: int | None, max_position: int) -> JobRows:
    """The first num_rows rows of each job; None: all.

    lengths: of each job's answers; None: those of the finished run in the job's output folder, or the longest allowed
    ones if there is none. Answers with ignore_eos are as long as they may be.

    Raises what reading a job's input raises, ModelError, and UsageError for lengths that do not fit the rows.
    """
    from batchrunner.engine.text.tokenizer import Tokenizer  # transformers takes seconds to import

    tokenizer = Tokenizer(model_folder(job_file.model))
    reading = _Reading(tokenizer, num_rows, max_position)
    for job in job_file.jobs:
        reading.read(job, lengths or _lengths_for(job))

    def text_of(request: Request) -> str:
        return tokenizer.decode(request.token_ids[: request.num_prompt_tokens])

    return JobRows(reading.rows, reading.num_failed, reading.num_equal, text_of)


def model_folder(name: str) -> Path:
    """Where the model's config.json and tokenizer are; its weights need not be there."""
    path = local_path(name)
    return path if path is not None and path.is_dir() else find_model(name).folder


@dataclass(frozen=True, slots=True)
class _Asked:
    """A row that can be asked."""

    token_ids: list[int]
    sampling: SamplingParams
    priority: int


class _Reading:
    def __init__(self, encoder: Encoder, num_rows: int | None, max_position: int) -> None:
        self.rows: list[SimRow] = []
        self.num_failed = 0
        self.num_equal = 0
        self._encoder = encoder
        self._num_rows = num_rows
        self._max_position = max_position
        self._seeds = count(1)

    def read(self, job: JobSpec, lengths: Lengths) -> None:
        rows = list(islice(_asked_rows(job, self._encoder), self._num_rows))
        limits = [_max_output(row, self._max_position) for row in rows]
        if self._num_rows is not None:
            lengths = lengths.of_first(len(rows))
        asked: set[bytes] = set()
        for row, limit, length in zip(rows, limits, lengths.for_rows(limits, seed=0), strict=True):
            if row is None:
                self.num_failed += 1
                continue
            question = question_digest(row.token_ids, row.sampling)
            if row.sampling.is_greedy and question in asked:
                self.num_equal += 1
                continue
            asked.add(question)
            self.rows.append(self._row(job, row, limit if row.sampling.ignore_eos else length))

    def _row(self, job: JobSpec, row: _Asked, length: int) -> SimRow:
        return SimRow(
            token_ids=row.token_ids,
            max_tokens=row.sampling.max_tokens,
            num_output_tokens=length,
            answer_seed=next(self._seeds),
            priority=row.priority,
            ignore_eos=row.sampling.ignore_eos,
            group=job.name,
        )


def _asked_rows(job: JobSpec, encoder: Encoder) -> Iterator[_Asked | None]:
    """None for a row that cannot be asked."""
    builder = PromptBuilder(job, encoder)
    for file in find_inputs(job.inputs):
        for rows in read_rows(file, builder.columns):
            prompts = [_prompt(row, builder) for row in rows]
            token_ids = iter(builder.encode([prompt.text for prompt in prompts if prompt is not None]))
            for prompt in prompts:
                yield None if prompt is None else _Asked(next(token_ids), prompt.sampling, prompt.priority)


def _prompt(row: Row, builder: PromptBuilder) -> Prompt | None:
    try:
        return None if row.error is not None else builder.build(row.values)
    except RowError:
        return None


def _max_output(row: _Asked | None, max_position: int) -> int:
    """At least 1, also of a row that will be refused."""
    if row is None:
        return 1
    return max(1, min(row.sampling.max_tokens, max_position - len(row.token_ids)))


def _lengths_for(job: JobSpec) -> Lengths:
    output = Path(job.output)
    return Lengths.parse(f"run:{output}" if (output / "_SUCCESS").exists() else "max")
