"""Text to token ids and back, with the model's own tokenizer and chat template."""

import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers
import transformers
from jinja2.exceptions import TemplateError
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from batchrunner.engine.text.stop_strings import StopStrings
from batchrunner.errors import ModelError, RowError

_CONTENT = ("*.json", "*.jinja", "*.model", "*.txt", "additional_chat_templates/*.jinja")
_NOT_OF_THE_TOKENIZER = ("config.json", "generation_config.json", "*.index.json")


class Tokenizer:
    """The tokenizer of a model folder. Raises ModelError if there is none that can be used."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False)
        except Exception as error:  # transformers raises what its many tokenizer files make it raise
            raise ModelError(f"{folder}: the tokenizer cannot be loaded: {error}") from error
        # A class with an encoding of its own (CodeLlama's <FILL_ME>, those in Python) is asked itself.
        encode_plus = getattr(type(self._tokenizer), "_encode_plus", None)
        self._is_plain = encode_plus is PreTrainedTokenizerFast._encode_plus
        if self._is_plain:  # a tokenizer.json may say otherwise; calling the tokenizer resets it as well
            self._tokenizer.backend_tokenizer.no_truncation()
            self._tokenizer.backend_tokenizer.no_padding()

    @cached_property
    def identity(self) -> str:
        """Changes with anything that token ids depend on, and not with the model's weights."""
        versions = (transformers.__version__, tokenizers.__version__, type(self._tokenizer).__name__)
        digest = hashlib.sha256("\n".join(versions).encode())
        for file in sorted({file for pattern in _CONTENT for file in self._folder.glob(pattern) if file.is_file()}):
            if not any(file.match(pattern) for pattern in _NOT_OF_THE_TOKENIZER):
                content = hashlib.sha256(file.read_bytes()).hexdigest()
                digest.update(f"\n{file.relative_to(self._folder)} {content}".encode())
        return digest.hexdigest()

    @property
    def eos_token_id(self) -> int | None:
        token_id: int | None = self._tokenizer.eos_token_id
        return token_id

    @property
    def has_chat_template(self) -> bool:
        return bool(self._tokenizer.chat_template)

    def encode_prompt(self, text: str) -> list[int]:
        """Token ids of a plain prompt, with the special tokens the tokenizer adds by itself, BOS once at most."""
        return self.encode_prompts([text])[0]

    def encode_prompts(self, texts: Sequence[str]) -> list[list[int]]:
        """encode_prompt of each text, on all cores."""
        bos = self._tokenizer.bos_token_id
        found = self._encode(texts, add_special_tokens=True)
        if bos is None:
            return found
        return [ids[1:] if ids[:2] == [bos, bos] else ids for ids in found]  # the text began with BOS already

    def encode_messages(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        """Token ids of a conversation by the model's chat template, ready for the assistant's turn. Raises RowError."""
        return self.encode_rendered([self.render_messages(messages)])[0]

    def render_messages(self, messages: Sequence[dict[str, Any]]) -> str:
        """The text of a conversation by the model's chat template, ready for the assistant's turn.

        Raises RowError if the template refuses the messages (a role it does not know, a wrong order).
        """
        if not self.has_chat_template:
            raise ModelError("the model has no chat template: use prompt: instead of messages:, or an instruct model")
        try:
            text: str = self._tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
        except (TemplateError, TypeError, KeyError, AttributeError) as error:
            raise RowError("bad_messages", f"the chat template refuses the messages: {error}") from error
        return text

    def encode_rendered(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of rendered conversations, which bring their special tokens themselves; on all cores."""
        return self._encode(texts, add_special_tokens=False)

    def _encode(self, texts: Sequence[str], *, add_special_tokens: bool) -> list[list[int]]:
        """What calling the tokenizer gives as input_ids, in about half the time: without masks and offsets."""
        if not self._is_plain:
            return [self._tokenizer(text, add_special_tokens=add_special_tokens)["input_ids"] for text in texts]
        backend = self._tokenizer.backend_tokenizer
        encodings = backend.encode_batch_fast(list(texts), add_special_tokens=add_special_tokens)
        return [encoding.ids for encoding in encodings]

    def decode(self, token_ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(
            list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    def stop_matcher(self, stop: Sequence[str]) -> StopStrings:
        return StopStrings(self._tokenizer.backend_tokenizer, stop)
