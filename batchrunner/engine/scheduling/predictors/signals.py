"""Prompts say how long an answer they want: "in one word", "list 5 reasons", "write an essay"."""

from collections.abc import Sequence

from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.predictors.calibration import Calibration
from batchrunner.engine.scheduling.predictors.kept_estimates import CAPACITY, KeptEstimates
from batchrunner.engine.scheduling.predictors.predictor import TextOf, outlived
from batchrunner.engine.scheduling.predictors.signal_rules import DEFAULT_TOKENS, RULES, PromptWords

NUM_CHARS = 1000  # looked at from the beginning and from the end


class Signals:
    """A length guessed from the words of the prompt (English), scaled to what the model at hand makes of such guesses.

    The instruction stands at the beginning of a prompt or at its end, and between them stands the text it is about:
    only the first and the last NUM_CHARS characters are read, which also bounds the time for a long prompt.

    text_of: the prompt as text; asked once a request, and once more when it ends if its guess was not kept that long.
    """

    def __init__(self, text_of: TextOf, capacity: int = CAPACITY) -> None:
        self._text_of = text_of
        self._guesses = KeptEstimates(capacity)
        self._calibration = Calibration()

    def prepare(self, requests: Sequence[Request]) -> None:
        pass

    def predict(self, request: Request) -> float:
        return outlived(self._guess(request) * self._calibration.ratio(request.group), request)

    def observe(self, request: Request) -> None:
        if request.finish_reason in ("stop", "length"):
            self._calibration.observe(request.group, self._guess(request), max(1, request.num_output_tokens))
        self._guesses.forget(request)

    def _guess(self, request: Request) -> float:
        if request not in self._guesses:
            text = self._text_of(request)
            self._guesses.keep(request, guessed_tokens(text, request.num_prompt_tokens))
        return self._guesses[request]


def guessed_tokens(text: str, num_prompt_tokens: int) -> float:
    """Tokens that the prompt's words ask for, at least 1."""
    if len(text) > 2 * NUM_CHARS:
        text = f"{text[:NUM_CHARS]} . {text[-NUM_CHARS:]}"  # a stop: no match crosses the gap
    words = PromptWords(text)
    guesses = (rule.tokens(words, num_prompt_tokens) for rule in RULES)
    return max(1.0, next((guess for guess in guesses if guess is not None), DEFAULT_TOKENS))
