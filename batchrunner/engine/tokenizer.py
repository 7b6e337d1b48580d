"""Text to token ids and back, with the model's own tokenizer and chat template."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2.exceptions import TemplateError
from tokenizers.decoders import DecodeStream
from transformers import AutoTokenizer

from batchrunner.errors import ModelError, RowError


class Tokenizer:
    """The tokenizer of a model folder. Raises ModelError if there is none that can be used."""

    def __init__(self, folder: Path) -> None:
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False)
        except Exception as error:  # transformers raises what its many tokenizer files make it raise
            raise ModelError(f"{folder}: the tokenizer cannot be loaded: {error}") from error

    @property
    def eos_token_id(self) -> int | None:
        token_id: int | None = self._tokenizer.eos_token_id
        return token_id

    @property
    def has_chat_template(self) -> bool:
        return bool(self._tokenizer.chat_template)

    def encode_prompt(self, text: str) -> list[int]:
        """Token ids of a plain prompt, with the special tokens the tokenizer adds by itself, BOS once at most."""
        token_ids: list[int] = self._tokenizer(text)["input_ids"]
        bos = self._tokenizer.bos_token_id
        if bos is not None and token_ids[:2] == [bos, bos]:
            return token_ids[1:]  # the text began with BOS already
        return token_ids

    def encode_messages(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        """Token ids of a conversation by the model's chat template, ready for the assistant's turn.

        Raises RowError if the template refuses the messages (a role it does not know, a wrong order).
        """
        if not self.has_chat_template:
            raise ModelError("the model has no chat template: use prompt: instead of messages:, or an instruct model")
        try:
            encoded = self._tokenizer.apply_chat_template(
                list(messages), tokenize=True, add_generation_prompt=True, return_dict=True
            )
        except (TemplateError, TypeError, KeyError, AttributeError) as error:
            raise RowError("bad_messages", f"the chat template refuses the messages: {error}") from error
        token_ids: list[int] = encoded["input_ids"]
        return token_ids

    def decode(self, token_ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(
            list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    def stop_matcher(self, stop: Sequence[str]) -> "StopStrings":
        return StopStrings(self._tokenizer.backend_tokenizer, stop)


class StopStrings:
    """Finds stop strings in the text of one request as its tokens come, also where one spans two tokens."""

    def __init__(self, backend: Any, stop: Sequence[str]) -> None:
        self._backend = backend
        self._stop = tuple(stop)
        self._stream: Any = DecodeStream(skip_special_tokens=True)
        self._tail = ""
        self._keep = max(map(len, stop)) - 1

    def feed(self, token_id: int) -> bool:
        chunk = self._stream.step(self._backend, token_id)
        if chunk is None:  # not a whole character yet
            return False
        self._tail += chunk
        found = any(stop in self._tail for stop in self._stop)
        self._tail = self._tail[-self._keep :] if self._keep else ""
        return found


def cut_at_stop(text: str, stop: Sequence[str]) -> str:
    """The text before its first stop string."""
    positions = [text.find(item) for item in stop]
    return text[: min((position for position in positions if position >= 0), default=len(text))]
