"""Spools of small inputs, made with an encoder that can be read."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from batchrunner.data.spool.spool import Spool, prepare_spool
from batchrunner.spec.job import JobSpec

MODEL = "model"  # the fingerprint of the model that is asked


class LetterEncoder:
    """Token ids are code points; messages become lines of `role: content`. Remembers what it was asked to encode."""

    identity = "letters"

    def __init__(self) -> None:
        self.encoded: list[str] = []

    def render_messages(self, messages: Sequence[dict[str, Any]]) -> str:
        return "".join(f"{message['role']}: {message['content']}\n" for message in messages)

    def encode_prompts(self, texts: Sequence[str]) -> list[list[int]]:
        return self.encode_rendered(texts)

    def encode_rendered(self, texts: Sequence[str]) -> list[list[int]]:
        self.encoded += texts
        return [[ord(letter) for letter in text] for text in texts]


def job_over(tmp_path: Path, rows: Sequence[Any] | bytes | pa.Table | None, /, **changes: Any) -> JobSpec:
    """A job over these rows: JSON objects, the bytes of a JSONL file, or a Parquet table; None: over no new file."""
    fields: dict[str, Any] = {"name": "job", "input": str(tmp_path / "in.jsonl"), "output": "o"}
    if "messages" not in changes:
        fields["prompt"] = "{{ t }}"
    if isinstance(rows, pa.Table):
        fields["input"] = str(tmp_path / "in.parquet")
        pq.write_table(rows, fields["input"])
    elif rows is not None:
        content = rows if isinstance(rows, bytes) else b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        (tmp_path / "in.jsonl").write_bytes(content)
    return JobSpec.model_validate(fields | changes)


def ignore(num_rows: int) -> None:
    pass


def spooled(
    job: JobSpec, tmp_path: Path, encoder: LetterEncoder | None = None, on_rows: Callable[[int], None] = ignore
) -> Spool:
    """The spool of a job, in the folder that it always has, for MODEL."""
    return prepare_spool(job, encoder or LetterEncoder(), tmp_path / "spool", on_rows).for_model(MODEL)


def spool_of(tmp_path: Path, rows: Sequence[Any] | bytes | pa.Table | None, /, **changes: Any) -> Spool:
    return spooled(job_over(tmp_path, rows, **changes), tmp_path)


def ids_of(spool: Spool) -> list[bytes | None]:
    found: list[bytes | None] = spool.request_ids.to_pylist()
    return found


def errors_of(spool: Spool) -> list[str | None]:
    found: list[str | None] = spool.table["error_type"].to_pylist()
    return found


def texts_of(spool: Spool) -> list[str | None]:
    """The prompts, as text again; None for a row that cannot be asked."""
    return [
        None if error else "".join(map(chr, spool.request(row).token_ids)) for row, error in enumerate(errors_of(spool))
    ]


def encoded_again(job: JobSpec, tmp_path: Path, texts: Sequence[str | None]) -> list[str]:
    """What has to be tokenised to spool the job once more. Whatever that is, the spool has these texts."""
    encoder = LetterEncoder()
    assert texts_of(spooled(job, tmp_path, encoder)) == texts
    return encoder.encoded
