"""The job file: what it accepts, and that every mistake is told with field, value and remedy."""

import traceback
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from batchrunner import job_file as job_file_module
from batchrunner.data.sources import find_inputs
from batchrunner.errors import DataError, JobFileError, UsageError
from batchrunner.job_file import build_job_file, load_job_file, parse_override
from batchrunner.job_yaml import MAX_ALIASES
from batchrunner.spec import ColumnRef, JobFile, JobSpec, SamplingParams, SamplingSpec, parse_bytes

SECRET = "hunter2-9731"
NAME_RULE = "may have only A-Z, a-z, 0-9, '.', '_' and '-', and must begin with a letter or a digit"


def document(**changes: Any) -> dict[str, Any]:
    """A valid job file with one job; changes go into the job."""
    job = {"name": "one", "input": "in.jsonl", "output": "out", "prompt": "{{ text }}", **changes}
    return {"model": "m", "jobs": [job]}


def build(content: Any, overrides: dict[str, Any] | None = None, base: Path = Path("/base")) -> JobFile:
    return build_job_file(content, overrides or {}, base, "jobs.yaml")


def refusal(content: Any, overrides: dict[str, Any] | None = None) -> str:
    """The first lines of the error that a wrong document ends with."""
    with pytest.raises(JobFileError) as caught:
        build(content, overrides)
    return str(caught.value)


def load(folder: Path, text: str | bytes, overrides: dict[str, Any] | None = None) -> JobFile:
    path = folder / "jobs.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_job_file(path, overrides)


def load_refusal(folder: Path, text: str | bytes) -> str:
    with pytest.raises(JobFileError) as caught:
        load(folder, text)
    return str(caught.value)


VALID = """\
model: m
engine: {kv_memory: 8GiB, policy: fcfs}
jobs:
  - name: one
    input: [in/*.jsonl, more.parquet]
    output: out/one
    messages:
      - {role: system, content: Be brief.}
      - {role: user, content: "{{ text }}"}
    sampling: {max_tokens: 5, seed: {column: s}}
"""


def test_a_valid_file_is_read_with_its_values_and_the_defaults(tmp_path: Path) -> None:
    found = load(tmp_path, VALID)
    assert found.model == "m"
    assert found.engine.kv_memory == 8 * 2**30
    assert found.engine.policy == "fcfs"
    assert found.engine.block_size == 16
    (job,) = found.jobs
    assert job.name == "one"
    assert job.inputs == (str(tmp_path / "in/*.jsonl"), str(tmp_path / "more.parquet"))
    assert job.output == str(tmp_path / "out/one")
    assert isinstance(job.messages, tuple)
    assert [(message.role, message.content) for message in job.messages] == [
        ("system", "Be brief."),
        ("user", "{{ text }}"),
    ]
    assert job.sampling == SamplingSpec(max_tokens=5, seed=ColumnRef(column="s"))
    assert (job.column, job.columns, job.on_error) == ("response", None, "row")


def test_a_byte_order_mark_is_no_trouble(tmp_path: Path) -> None:
    assert load(tmp_path, b"\xef\xbb\xbf" + VALID.encode()).model == "m"


def test_the_parts_of_a_job_file_are_frozen() -> None:
    found = build(document())
    with pytest.raises(ValidationError, match="frozen"):
        found.jobs[0].name = "two"  # type: ignore[misc]


# --- keys -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"enginee": {}}, "enginee: unknown key; did you mean 'engine'?"),
        ({"engine": {"polcy": "prefix"}}, "engine.polcy: unknown key; did you mean 'policy'?"),
        ({"zzz": 1}, "zzz: unknown key; known keys: model, engine, jobs"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(change: dict[str, Any], line: str) -> None:
    assert refusal(document() | change) == f"jobs.yaml: {line}"


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"outptu": "x"}, "jobs[0].outptu: unknown key; did you mean 'output'?"),
        ({"sampling": {"temprature": 1}}, "jobs[0].sampling.temprature: unknown key; did you mean 'temperature'?"),
        (
            {"prompt": None, "messages": [{"role": "user", "content": "x", "contnt": "y"}]},
            "jobs[0].messages[0].contnt: unknown key; did you mean 'content'?",
        ),
    ],
)
def test_an_unknown_key_below_a_job_is_named_with_its_path(change: dict[str, Any], line: str) -> None:
    assert f"jobs.yaml: {line}" in refusal(document(**change)).splitlines()


def test_an_unknown_key_of_a_column_reference_gets_the_right_suggestion() -> None:
    text = refusal(document(sampling={"max_tokens": {"colum": "n"}}))
    assert "jobs.yaml: jobs[0].sampling.max_tokens.colum: unknown key; did you mean 'column'?" in text.splitlines()


@pytest.mark.parametrize("key", ["name", "input", "output"])
def test_a_missing_key_of_a_job_is_named(key: str) -> None:
    content = document()
    del content["jobs"][0][key]
    assert refusal(content).splitlines()[0] == f"jobs.yaml: jobs[0].{key}: this key is required"


@pytest.mark.parametrize("key", ["model", "jobs"])
def test_a_missing_key_of_the_file_is_named(key: str) -> None:
    content = document()
    del content[key]
    assert refusal(content) == f"jobs.yaml: {key}: this key is required"


@pytest.mark.parametrize("key", ["response", "max_tokens", "x"])
def test_only_a_key_that_is_really_near_is_suggested(key: str) -> None:
    text = refusal(document(**{key: 1}))
    assert text.startswith(f"jobs.yaml: jobs[0].{key}: unknown key; known keys: name, input, output, prompt, messages")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"input": []}, "input: the list is empty; name at least one file, glob or folder"),
        ({"input": {"a": 1}}, "input: input should be text or a list"),
        ({"input": ["a", 3]}, "input[1]: 3 input should be text; put it in quotes"),
        ({"input": ""}, "input: '' is no path; it is empty or has a zero byte"),
        ({"output": "a\0b"}, "output: 'a\\x00b' is no path; it is empty or has a zero byte"),
        ({"output": "s3://b/out"}, "output: 's3://b/out' remote outputs are not supported; give a folder"),
        ({"name": None}, "name: null input should be text"),
        ({"name": True}, "name: true input should be text; put it in quotes"),
        ({"prompt": 3}, "prompt: 3 input should be text or {column: NAME}"),
        ({"prompt": None, "messages": "text"}, "messages: 'text' input should be a list or {column: NAME}"),
        ({"prompt": None, "messages": ["text"]}, "messages[0]: 'text' input should be a mapping"),
        ({"prompt": None, "messages": [{"role": "user"}]}, "messages[0].content: this key is required"),
        ({"sampling": 3}, "sampling: 3 input should be a mapping"),
        (
            {"sampling": {"max_tokens": 1.5}},
            "sampling.max_tokens: 1.5 input should be a whole number or {column: NAME}",
        ),
        (
            {"sampling": {"max_tokens": {"column": 3}}},
            "sampling.max_tokens.column: 3 input should be text; put it in quotes",
        ),
        ({"sampling": {"max_tokens": {"colum": 3}}}, "sampling.max_tokens.colum: unknown key; did you mean 'column'?"),
        (
            {"sampling": {"max_tokens": {"int": 3, "column": "n"}}},
            "sampling.max_tokens.int: unknown key; known keys: column",
        ),
        ({"sampling": {"stop": ["a", 1]}}, "sampling.stop[1]: 1 input should be text; put it in quotes"),
        ({"sampling": {"ignore_eos": 5}}, "sampling.ignore_eos: 5 input should be true or false or {column: NAME}"),
        ({"sampling": {"top_k": 2**63}}, f"sampling.top_k: {2**63} input should be less than {2**63}"),
    ],
)
def test_one_mistake_gets_one_line_in_the_words_of_a_job_file(change: dict[str, Any], line: str) -> None:
    assert refusal(document(**change)) == f"jobs.yaml: jobs[0].{line}"


@pytest.mark.parametrize(
    ("engine", "line"),
    [
        ({"max_running": -1}, ".max_running: -1 input should be greater than or equal to 1"),
        ({"max_running": "many"}, ".max_running: 'many' input should be 'auto' or a whole number"),
        ({"kv_memory": [1]}, ".kv_memory: input should be 'auto' or a whole number"),
        ({"kv_memory": 16**5000}, f".kv_memory: this number input should be less than {2**63}"),
        ("fast", ": 'fast' input should be a mapping"),
    ],
)
def test_one_mistake_in_the_engine_gets_one_line(engine: Any, line: str) -> None:
    assert refusal(document() | {"engine": engine}) == f"jobs.yaml: engine{line}"


def test_a_long_value_is_cut_in_the_message() -> None:
    assert len(refusal(document(on_error="x" * 10_000))) < 250


def test_an_empty_section_means_the_defaults() -> None:
    found = build(document(sampling=None) | {"engine": None})
    assert found == build(document())


def test_every_mistake_gets_its_own_line() -> None:
    lines = refusal(document() | {"enginee": 1, "engine": {"block_size": 0}}).splitlines()
    assert lines == [
        "jobs.yaml: engine.block_size: 0 input should be greater than or equal to 1",
        "jobs.yaml: enginee: unknown key; did you mean 'engine'?",
    ]


@pytest.mark.parametrize("content", [None, "text", 3, ["a"]])
def test_what_is_no_mapping_is_no_job_file(content: Any) -> None:
    assert refusal(content) == "jobs.yaml: a job file is a mapping with the keys model, engine and jobs"


# --- values ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "line"),
    [
        ({"device": "tpu"}, "engine.device: 'tpu' input should be 'auto', 'cpu' or 'cuda'"),
        ({"policy": "sjf"}, "engine.policy: 'sjf' input should be 'prefix' or 'fcfs'"),
        ({"block_size": 2000}, "engine.block_size: 2000 input should be less than or equal to 1024"),
        ({"kv_tokens": 0}, "engine.kv_tokens: 0 input should be greater than or equal to 1"),
        ({"kv_memory": "lots"}, "engine.kv_memory: 'lots' not a size; write a number of bytes or, for example, 8GiB"),
        (
            {"kv_memory": "8GiB", "kv_tokens": 64},
            "engine: kv_tokens and kv_memory both size the KV pool; give one of them",
        ),
    ],
)
def test_a_wrong_engine_value_is_named_with_its_field(engine: dict[str, Any], line: str) -> None:
    assert f"jobs.yaml: {line}" in refusal(document() | {"engine": engine}).splitlines()


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            {"name": "../up"},
            "jobs[0].name: '../up' " + NAME_RULE,
        ),
        (
            {"name": "one\n"},
            "jobs[0].name: 'one\\n' " + NAME_RULE,
        ),
        ({"input": 3}, "jobs[0].input: 3 input should be text or a list"),
        ({"on_error": "skip"}, "jobs[0].on_error: 'skip' input should be 'row' or 'stop'"),
        ({"columns": "text"}, "jobs[0].columns: 'text' input should be a list"),
        ({"messages": [{"role": "user", "content": "x"}]}, "jobs[0]: give either prompt or messages"),
        ({"prompt": None}, "jobs[0]: give either prompt or messages"),
        ({"prompt": None, "messages": []}, "jobs[0]: messages is empty"),
        (
            {"column": "_batchrun"},
            "jobs[0]: column must not be _batchrun; that name holds the bookkeeping of each row",
        ),
        (
            {"sampling": {"max_tokens": 0}},
            "jobs[0].sampling.max_tokens: 0 input should be greater than or equal to 1",
        ),
        (
            {"sampling": {"temperature": -1}},
            "jobs[0].sampling.temperature: -1 input should be greater than or equal to 0",
        ),
        (
            {"sampling": {"temperature": float("nan")}},
            "jobs[0].sampling.temperature: nan input should be a finite number",
        ),
        ({"sampling": {"top_p": float("nan")}}, "jobs[0].sampling.top_p: nan input should be less than or equal to 1"),
        ({"sampling": {"seed": 2**63}}, f"jobs[0].sampling.seed: {2**63} input should be less than {2**63}"),
        (
            {"sampling": {"stop": ["a", ""]}},
            "jobs[0].sampling.stop: a stop string is empty; every text would end at once",
        ),
    ],
)
def test_a_wrong_job_value_is_named_with_its_field(change: dict[str, Any], line: str) -> None:
    assert f"jobs.yaml: {line}" in refusal(document(**change)).splitlines()


def test_a_mistake_in_a_job_does_not_claim_that_there_is_no_job() -> None:
    assert refusal(document(on_error="skip")) == "jobs.yaml: jobs[0].on_error: 'skip' input should be 'row' or 'stop'"


def test_a_file_without_jobs_is_refused() -> None:
    assert (
        refusal({"model": "m", "jobs": []}) == "jobs.yaml: jobs: the list is empty; a job file needs at least one job"
    )


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"name": "one"}, "jobs: jobs[0] and jobs[1] have the same name; every job needs its own"),
        ({"output": "out"}, "jobs[1].output: 'out' is the output of jobs[0] too; every job needs its own"),
        ({"output": "out/x"}, "jobs[1].output: 'out/x' lies in the output of jobs[0]; every job needs its own"),
    ],
)
def test_two_jobs_may_not_share_a_name_or_an_output(change: dict[str, Any], line: str) -> None:
    content = two_jobs()
    content["jobs"][1] |= change
    assert refusal(content) == f"jobs.yaml: {line}"


def test_an_output_around_another_one_is_refused() -> None:
    content = two_jobs()
    content["jobs"][0]["output"] = "out2/x"
    assert refusal(content).startswith("jobs.yaml: jobs[0].output: 'out2/x' lies in the output of jobs[1];")


@pytest.mark.parametrize("output", [".", "./", "x/..", "/base"])
def test_the_folder_of_the_job_file_is_no_output(output: str) -> None:
    assert "is the folder of the job file" in refusal(document(output=output))


@pytest.mark.parametrize("other", ["./out", "out/", "x/../out"])
def test_one_output_written_in_two_ways_is_still_one_output(other: str) -> None:
    content = document()
    content["jobs"].append(content["jobs"][0] | {"name": "two", "output": other})
    assert "output" in refusal(content)


@pytest.mark.parametrize(
    ("written", "num_bytes"),
    [
        ("8GiB", 8 * 2**30),
        ("8gib", 8 * 2**30),
        ("8Gi", 8 * 2**30),
        ("8G", 8 * 10**9),
        ("500 MB", 500 * 10**6),
        ("1.5KiB", 1536),
        ("2T", 2 * 10**12),
        ("12345", 12345),
        ("100B", 100),
        (4096, 4096),
        ("auto", "auto"),
    ],
)
def test_sizes_are_read_with_their_units(written: Any, num_bytes: Any) -> None:
    assert parse_bytes(written) == num_bytes
    assert build(document() | {"engine": {"kv_memory": written}}).engine.kv_memory == num_bytes


@pytest.mark.parametrize("written", ["-1GiB", "8XB", "GiB", "8 Gi B", "1e9", "", "0"])
def test_what_is_no_size_is_refused(written: str) -> None:
    assert f"jobs.yaml: engine.kv_memory: {written!r} " in refusal(document() | {"engine": {"kv_memory": written}})


@pytest.mark.parametrize("written", ["8iB", "8i", "9" * 400, "9" * 30, "٣GiB", 2**63])
def test_a_malformed_or_endless_size_is_refused_like_any_other(written: Any) -> None:
    assert "engine.kv_memory" in refusal(document() | {"engine": {"kv_memory": written}})


def test_a_whole_number_of_bytes_is_exact() -> None:
    assert parse_bytes("9007199254740993") == 2**53 + 1


# --- sampling -------------------------------------------------------------------------------------------------------


def test_sampling_tells_constants_from_columns() -> None:
    spec = (
        build(
            document(
                sampling={"max_tokens": {"column": "n"}, "temperature": 0.5, "stop": "END", "seed": {"column": "s"}}
            )
        )
        .jobs[0]
        .sampling
    )
    assert spec.constants() == {"temperature": 0.5, "stop": "END"}
    assert spec.columns() == {"max_tokens": "n", "seed": "s"}


def test_every_sampling_parameter_may_name_a_column() -> None:
    names = list(SamplingParams.model_fields)
    spec = build(document(sampling={name: {"column": f"c_{name}"} for name in names})).jobs[0].sampling
    assert spec.columns() == {name: f"c_{name}" for name in names}
    assert spec.constants() == {}


@pytest.mark.parametrize(
    ("written", "params"),
    [
        ({"max_tokens": 3.0}, SamplingParams(max_tokens=3)),
        ({"stop": "x"}, SamplingParams(stop=("x",))),
        ({"stop": ["x", "y"], "stop_token_ids": [4]}, SamplingParams(stop=("x", "y"), stop_token_ids=(4,))),
        ({"seed": 2**63 - 1, "top_k": 5}, SamplingParams(seed=2**63 - 1, top_k=5)),
        ({"temperature": None}, SamplingParams()),
    ],
)
def test_constant_sampling_becomes_parameters(written: dict[str, Any], params: SamplingParams) -> None:
    assert SamplingParams(**build(document(sampling=written)).jobs[0].sampling.constants()) == params


@pytest.mark.parametrize("written", [1.5, "abc", [1], {"column": 3}])
def test_a_sampling_value_of_the_wrong_kind_is_refused(written: Any) -> None:
    assert "jobs[0].sampling.max_tokens" in refusal(document(sampling={"max_tokens": written}))


def test_only_temperature_zero_is_greedy() -> None:
    assert SamplingParams().is_greedy
    assert not SamplingParams(temperature=0.001).is_greedy


def test_prompt_and_messages_may_name_a_column() -> None:
    assert build(document(prompt={"column": "p"})).jobs[0].prompt == ColumnRef(column="p")
    assert build(document(prompt=None, messages={"column": "m"})).jobs[0].messages == ColumnRef(column="m")


def test_inputs_is_a_tuple_for_one_input_and_for_many() -> None:
    common: dict[str, Any] = {"name": "a", "output": "o", "prompt": "x"}
    assert JobSpec(input="a.jsonl", **common).inputs == ("a.jsonl",)
    assert JobSpec(input=("a.jsonl", "b.jsonl"), **common).inputs == ("a.jsonl", "b.jsonl")


# --- YAML -----------------------------------------------------------------------------------------------------------


def test_a_key_written_twice_is_refused_with_its_line(tmp_path: Path) -> None:
    text = VALID + "    output: elsewhere\n"
    assert load_refusal(tmp_path, text).endswith("jobs.yaml: line 11: the key 'output' is there twice")


def test_merge_keys_are_no_duplicates_and_own_values_win(tmp_path: Path) -> None:
    text = """\
model: m
jobs:
  - &first {name: a, input: i.jsonl, output: oa, prompt: x, sampling: {max_tokens: 5}}
  - &second {<<: *first, name: b, output: ob}
  - {<<: *second, name: c, output: oc}
"""
    jobs = load(tmp_path, text).jobs
    assert [(job.name, Path(job.output).name, job.prompt, job.sampling.max_tokens) for job in jobs] == [
        ("a", "oa", "x", 5),
        ("b", "ob", "x", 5),
        ("c", "oc", "x", 5),
    ]


def test_too_many_aliases_are_refused(tmp_path: Path) -> None:
    aliases = ", ".join(["*a"] * (MAX_ALIASES + 1))
    assert "more than 100 YAML aliases" in load_refusal(tmp_path, f"model: &a m\njobs: [{aliases}]\n")


def test_as_many_aliases_as_allowed_are_read(tmp_path: Path) -> None:
    aliases = ", ".join(["*a"] * MAX_ALIASES)
    text = f"model: &a m\njobs:\n  - {{name: a, input: [{aliases}], output: o, prompt: x}}\n"
    assert len(load(tmp_path, text).jobs[0].inputs) == MAX_ALIASES


def test_an_alias_bomb_of_few_aliases_is_refused(tmp_path: Path) -> None:
    levels = [f"  - &l{i} [{', '.join([f'*l{i - 1}'] * 10)}]" for i in range(1, 6)]  # 50 aliases, 10**5 values
    text = "\n".join(["model: m", "jobs:", "  - &l0 x", *levels])
    message = load_refusal(tmp_path, text).replace(str(tmp_path), "")
    assert "alias" in message or "large" in message


@pytest.mark.parametrize(
    "text", ["model: &a [*a]\njobs: []\n", "model: " + "[" * 1200 + "]" * 1200], ids=["self", "deep"]
)
def test_endless_nesting_is_refused(tmp_path: Path, text: str) -> None:
    load_refusal(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        "? [a, b]\n: 1\n",
        "model: 2024-13-45\n",
        "model: 0x_\n",
        "model: !!int abc\n",
        "model: !!bool abc\n",
        "model: !!timestamp abc\n",
        f"model: {'9' * 5000}\n",
        "model: {{ text }}\n",
        "model: m\non: x\n",
        'model: "\\ud800"\njobs: []\n',
    ],
)
def test_values_that_yaml_cannot_build_are_refused(tmp_path: Path, text: str) -> None:
    load_refusal(tmp_path, text)


@pytest.mark.parametrize(
    "text", ["model: [\n", "a: b: c\n", "model:\t- x\n", "model: !!python/object:os.system x\n", "model: \x07\n"]
)
def test_what_is_not_plain_yaml_is_refused(tmp_path: Path, text: str) -> None:
    assert load_refusal(tmp_path, text).startswith(f"{tmp_path / 'jobs.yaml'}: not valid YAML: ")


def test_what_is_not_utf8_is_refused(tmp_path: Path) -> None:
    assert load_refusal(tmp_path, "model: é".encode("latin-1")) == f"{tmp_path / 'jobs.yaml'}: not UTF-8 text"


def test_a_giant_file_is_not_read(tmp_path: Path) -> None:
    text = VALID + "#" * job_file_module.MAX_FILE_BYTES
    assert "larger than 1,000,000 bytes" in load_refusal(tmp_path, text)


def test_a_file_of_just_the_limit_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_file_module, "MAX_FILE_BYTES", len(VALID))
    assert load(tmp_path, VALID).model == "m"
    assert "larger than" in load_refusal(tmp_path, VALID + "#")


def test_a_file_that_is_not_there_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(JobFileError, match=r"none\.yaml: cannot read the job file: No such file or directory"):
        load_job_file(tmp_path / "none.yaml")


def test_a_folder_is_no_job_file(tmp_path: Path) -> None:
    with pytest.raises(JobFileError, match="cannot read the job file: Is a directory"):
        load_job_file(tmp_path)


# --- overrides ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("engine.block_size=32", ("engine.block_size", 32)),
        ("jobs.0.prompt=a=b", ("jobs.0.prompt", "a=b")),
        ("engine.kv_tokens=", ("engine.kv_tokens", None)),
        ("jobs.0.input=[a, b]", ("jobs.0.input", ["a", "b"])),
        ("engine.prefix_caching=false", ("engine.prefix_caching", False)),
    ],
)
def test_an_override_is_split_and_its_value_read_as_yaml(text: str, parsed: tuple[str, Any]) -> None:
    assert parse_override(text) == parsed


@pytest.mark.parametrize("text", ["engine.block_size", "=3", ""])
def test_an_override_that_is_no_pair_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match=r"-o .*KEY=VALUE"):
        parse_override(text)


@pytest.mark.parametrize(
    "value",
    [
        "[1",
        "!!python/name:os.system x",
        "{{ text }}",
        "*.jsonl",
        "&a [*a]",
        "[" * 1200,
        "2024-13-45",
        "!!bool x",
        "\x07",
    ],
)
def test_an_override_that_is_no_yaml_is_refused_with_the_remedy(value: str) -> None:
    with pytest.raises(JobFileError, match=r"-o .*put the value in quotes, as in -o 'a\.b=.….'"):
        parse_override(f"a.b={value}")


def two_jobs() -> dict[str, Any]:
    content = document()
    content["jobs"].append(content["jobs"][0] | {"name": "two", "output": "out2"})
    return content


@pytest.mark.parametrize("step", ["1", "two"])
def test_an_override_finds_a_job_by_index_and_by_name(step: str) -> None:
    found = build(two_jobs(), {f"jobs.{step}.output": "new", f"jobs.{step}.sampling.max_tokens": 7})
    assert [job.output for job in found.jobs] == ["/base/out", "/base/new"]
    assert [job.sampling.max_tokens for job in found.jobs] == [None, 7]


def test_an_override_makes_the_sections_it_needs() -> None:
    assert build(document(), {"engine.block_size": 32}).engine.block_size == 32
    assert build(document() | {"engine": None}, {"engine.block_size": 32}).engine.block_size == 32


def test_an_override_may_replace_an_item_of_a_list() -> None:
    job = {"name": "new", "input": "i.jsonl", "output": "o", "prompt": "x"}
    assert [job.name for job in build(two_jobs(), {"jobs.two": job}).jobs] == ["one", "new"]


@pytest.mark.parametrize(
    ("dotted", "message"),
    [
        ("jobs.2.output", "override jobs.2.output: there is no item '2'"),
        ("jobs.-1.output", "override jobs.-1.output: there is no item '-1'"),
        ("jobs.three.output", "override jobs.three.output: there is no item 'three'"),
        ("jobs.three", "override jobs.three: there is no item 'three'"),
        ("model.x", "override model.x: 'x' is below a plain value"),
        ("model.x.y", "override model.x.y: 'x' is below a plain value"),
    ],
)
def test_an_override_of_what_is_not_there_is_refused(dotted: str, message: str) -> None:
    assert refusal(two_jobs(), {dotted: "x"}) == f"jobs.yaml: {message}"


def test_an_override_is_checked_like_the_file() -> None:
    assert refusal(document(), {"engine.polcy": "x"}).endswith("engine.polcy: unknown key; did you mean 'policy'?")
    assert "engine.block_size: -1 " in refusal(document(), {"engine.block_size": -1})


def test_an_override_by_index_replaces_that_item_and_no_equal_one() -> None:
    found = build(document(input=["a.jsonl", "a.jsonl"]), {"jobs.0.input.1": "b.jsonl"})
    assert found.jobs[0].inputs == ("/base/a.jsonl", "/base/b.jsonl")


def test_an_override_of_one_job_leaves_a_job_that_shares_a_section_alone(tmp_path: Path) -> None:
    text = """\
model: m
jobs:
  - {name: a, input: i.jsonl, output: oa, prompt: x, sampling: &s {max_tokens: 5}}
  - {name: b, input: i.jsonl, output: ob, prompt: x, sampling: *s}
"""
    found = load(tmp_path, text, {"jobs.a.sampling.max_tokens": 7})
    assert [job.sampling.max_tokens for job in found.jobs] == [7, 5]


@pytest.mark.parametrize("name", ["qwen2.5", "2.5", "a.b.c"])
def test_an_override_finds_a_job_whose_name_has_a_dot(name: str) -> None:
    content = document(name="a")
    content["jobs"].append(content["jobs"][0] | {"name": name, "output": "out2"})
    assert build(content, {f"jobs.{name}.output": "new"}).jobs[1].output == "/base/new"
    assert build(content, {f"jobs.{name}.sampling.seed": 3}).jobs[1].sampling.seed == 3


def test_overrides_leave_the_document_and_their_values_as_they_were() -> None:
    content, sampling = two_jobs(), {"max_tokens": 5}
    overrides = {"jobs.0.sampling": sampling, "jobs.one.sampling.max_tokens": 7, "engine.block_size": 8}
    assert build(content, overrides).jobs[0].sampling.max_tokens == 7
    assert (content, sampling) == (two_jobs(), {"max_tokens": 5})


def test_a_step_that_only_looks_like_a_digit_is_refused() -> None:
    assert "there is no item '²'" in refusal(document(), {"jobs.².output": "x"})


# --- environment ----------------------------------------------------------------------------------------------------


def test_the_environment_is_filled_in_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BR_DIR", "deep/er")
    monkeypatch.setenv("BR_N", "7")
    found = build(
        document(
            input=["${env:BR_DIR}/a.jsonl", "${env:BR_DIR}${env:BR_N}.jsonl"], sampling={"max_tokens": "${env:BR_N}"}
        )
    )
    assert found.jobs[0].inputs == ("/base/deep/er/a.jsonl", "/base/deep/er7.jsonl")
    assert found.jobs[0].sampling.max_tokens == 7


def test_an_environment_value_is_not_expanded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BR_A", "${env:BR_B}")
    monkeypatch.setenv("BR_B", SECRET)
    assert build(document(prompt="${env:BR_A}")).jobs[0].prompt == "${env:BR_B}"


def test_an_override_reads_the_environment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BR_OUT", "there")
    assert build(document(), {"jobs.0.output": "${env:BR_OUT}"}).jobs[0].output == "/base/there"


def test_what_only_looks_like_a_reference_stays() -> None:
    assert build(document(prompt="$HOME ${HOME} ${env:} ${env:1}")).jobs[0].prompt == "$HOME ${HOME} ${env:} ${env:1}"


def test_a_variable_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BR_NONE", raising=False)
    assert refusal(document(prompt="${env:BR_NONE}")) == (
        "jobs.yaml: ${env:BR_NONE}: the environment variable BR_NONE is not set"
    )


SECRETS_IN_WRONG_PLACES: list[dict[str, Any]] = [
    document() | {"engine": {"device": "${env:BR_SECRET}"}},
    document() | {"engine": {"kv_memory": "${env:BR_SECRET}"}},
    document() | {"engine": {"block_size": "x${env:BR_SECRET}"}},
    document(name="/${env:BR_SECRET}"),
    document(on_error="${env:BR_SECRET}"),
    document(sampling={"temperature": "${env:BR_SECRET}"}),
    document(sampling={"stop": ["", "${env:BR_SECRET}"]}),
    document(messages="${env:BR_SECRET}"),
    document(unknown="${env:BR_SECRET}"),
    {"model": {"key": "${env:BR_SECRET}"}},
    document(output="~${env:BR_SECRET}/x"),
    document(output="${env:BR_SECRET}" * 40),
    document(input=["a", "${env:BR_SECRET}\0"]),
]


@pytest.mark.parametrize("content", SECRETS_IN_WRONG_PLACES)
def test_an_error_shows_the_reference_and_never_the_secret(
    content: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BR_SECRET", SECRET)
    assert SECRET not in refusal(content)


def test_an_error_shows_the_value_as_the_file_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BR_SECRET", SECRET)
    assert "engine.device: '${env:BR_SECRET}' input should be" in refusal(SECRETS_IN_WRONG_PLACES[0])


@pytest.mark.parametrize("field", ["name", "output"])
def test_a_shared_name_or_output_does_not_tell_a_secret(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BR_SECRET", SECRET)
    content = two_jobs()
    for job in content["jobs"]:
        job[field] = "${env:BR_SECRET}"
    assert SECRET not in refusal(content)


@pytest.mark.parametrize("content", SECRETS_IN_WRONG_PLACES)
def test_the_traceback_of_an_error_does_not_tell_a_secret(
    content: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BR_SECRET", SECRET)
    with pytest.raises(JobFileError) as caught:
        build(content)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


# --- paths ----------------------------------------------------------------------------------------------------------


def test_relative_paths_are_taken_from_the_folder_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "jobs"
    (folder / "weights").mkdir(parents=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (folder / "jobs.yaml").write_text(
        "model: weights\njobs:\n  - {name: a, input: ../in.jsonl, output: ./out/, prompt: x}\n"
    )
    monkeypatch.chdir(elsewhere)
    found = load_job_file("../jobs/jobs.yaml")
    assert found.model == str(folder / "weights")
    assert found.jobs[0].inputs == (str(tmp_path / "in.jsonl"),)
    assert found.jobs[0].output == str(folder / "out")


@pytest.mark.parametrize(
    ("model", "found"),
    [
        ("org/name", "org/name"),
        ("package:NAME/FILE.gguf", "package:NAME/FILE.gguf"),
        ("./org/name", "/base/org/name"),
        ("../m", "/m"),
        ("/abs/m", "/abs/m"),
        ("~/m", "/home/me/m"),
    ],
)
def test_a_model_is_a_path_only_if_it_looks_like_one(model: str, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert build(document() | {"model": model}).model == found


def test_absolute_home_and_remote_inputs_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    inputs = ["/abs/x.jsonl", "~/y.jsonl", "s3://bucket/z.jsonl", "hf://org/data"]
    assert build(document(input=inputs)).jobs[0].inputs == (
        "/abs/x.jsonl",
        "/home/me/y.jsonl",
        "s3://bucket/z.jsonl",
        "hf://org/data",
    )


@pytest.mark.parametrize("field", ["input", "output"])
def test_the_home_of_an_unknown_user_is_refused(field: str) -> None:
    assert "nosuchuser" in refusal(document(**{field: "~nosuchuser-br/out"}))


@pytest.mark.parametrize("field", ["input", "output"])
@pytest.mark.parametrize("path", ["x" * 256, "é" * 128, "/x" * 2500])
def test_a_path_no_file_system_holds_is_refused(field: str, path: str) -> None:
    assert f"jobs[0].{field}: {path[:1]!r}"[:-1] in refusal(document(**{field: path}))


def test_brackets_in_the_folder_of_the_job_file_are_no_glob(tmp_path: Path) -> None:
    folder = tmp_path / "run[1]"
    for name in ("run[1]/a.jsonl", "run[1]/b[1].jsonl", "run1/a.jsonl", "run1/gone.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    for written, found in [
        ("*.jsonl", ["a", "b[1]"]),
        ("a.jsonl", ["a"]),
        ("b[1].jsonl", ["b[1]"]),
        (".", ["a", "b[1]"]),
    ]:
        job = build(document(input=written), base=folder).jobs[0]
        assert [file.path for file in find_inputs(job.inputs)] == [folder / f"{name}.jsonl" for name in found]
    with pytest.raises(DataError, match=r"run\[1\]/gone\.jsonl': no such file"):
        find_inputs(build(document(input="gone.jsonl"), base=folder).jobs[0].inputs)


def test_a_model_name_too_long_for_a_path_is_no_crash() -> None:
    assert build(document() | {"model": "x" * 5000}).model == "x" * 5000
