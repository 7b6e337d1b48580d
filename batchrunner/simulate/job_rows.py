"""The rows of a job file as the simulator takes them: read, rendered and tokenised as `batchrun submit` does."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

from batchrunner.data.prompts import Encoder, Prompt, PromptBuilder
from batchrunner.data.rows import read_rows
from batchrunner.data.sources import find_inputs
from batchrunner.engine.models import find_model, local_path
from batchrunner.engine.request import Request
from batchrunner.errors import RowError
from batchrunner.identity import request_digest
from batchrunner.simulate.lengths import Lengths
from batchrunner.simulate.loads import SimRow
from batchrunner.simulate.simulator import TextOf
from batchrunner.spec import JobFile, JobSpec


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
    from batchrunner.engine.tokenizer import Tokenizer  # transformers takes seconds to import

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
        prompts = list(islice(_prompts(job, self._encoder), self._num_rows))
        limits = [_max_output(prompt, self._max_position) for prompt in prompts]
        if self._num_rows is not None:
            lengths = lengths.of_first(len(prompts))
        asked: set[bytes] = set()
        for prompt, limit, length in zip(prompts, limits, lengths.for_rows(limits, seed=0), strict=True):
            if prompt is None:
                self.num_failed += 1
                continue
            digest = request_digest("", prompt.token_ids, prompt.sampling)
            if prompt.sampling.is_greedy and digest in asked:
                self.num_equal += 1
                continue
            asked.add(digest)
            self.rows.append(self._row(job, prompt, limit if prompt.sampling.ignore_eos else length))

    def _row(self, job: JobSpec, prompt: Prompt, length: int) -> SimRow:
        return SimRow(
            token_ids=prompt.token_ids,
            max_tokens=prompt.sampling.max_tokens,
            num_output_tokens=length,
            answer_seed=next(self._seeds),
            priority=prompt.priority,
            ignore_eos=prompt.sampling.ignore_eos,
            group=job.name,
        )


def _prompts(job: JobSpec, encoder: Encoder) -> Iterator[Prompt | None]:
    """None for a row that cannot be asked."""
    builder = PromptBuilder(job, encoder)
    for file in find_inputs(job.inputs):
        for rows in read_rows(file, builder.columns):
            for row in rows:
                try:
                    yield None if row.error is not None else builder.build(row.values)
                except RowError:
                    yield None


def _max_output(prompt: Prompt | None, max_position: int) -> int:
    """At least 1, also of a row that will be refused."""
    if prompt is None:
        return 1
    return max(1, min(prompt.sampling.max_tokens, max_position - len(prompt.token_ids)))


def _lengths_for(job: JobSpec) -> Lengths:
    output = Path(job.output)
    return Lengths.parse(f"run:{output}" if (output / "_SUCCESS").exists() else "max")
