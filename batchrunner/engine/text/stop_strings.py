"""Where an answer ends because of a text that it may not hold."""

from collections.abc import Sequence
from typing import Any

from tokenizers.decoders import DecodeStream


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
