"""The answers of a small model, by an engine of its own."""

from collections.abc import Sequence
from typing import Any

from batchrunner.engine.engine import EngineCore
from batchrunner.engine.request import Completion, Request
from batchrunner.engine.scheduling.predictors.predictor import TextOf
from batchrunner.errors import RowError, UsageError
from batchrunner.generate.generate import generate
from batchrunner.spec.engine import SmallModel
from batchrunner.spec.sampling import SamplingParams

DEFAULT_MAX_TOKENS = 256
KV_TOKENS = 8192  # beside the job's own model: enough for a few short answers at once


def small_model_for(spec: SmallModel, device: str, text_of: TextOf) -> "SmallModelAnswers":
    """The small model that `lengths` names, to be closed by the caller. device: as `engine.device`."""
    # Without a host tier: the memory is for the large one.
    return SmallModelAnswers(spec.model, text_of, device=device, kv_tokens=KV_TOKENS, preemption="recompute")


class SmallModelAnswers:
    """Requests → the lengths of a small model's answers to the same texts. What SmallModel asks.

    model: as Engine takes it; it is loaded when it is first asked. It needs a tokenizer of its own, since it reads the
    text that text_of gives and not the large model's token ids. With a chat template the text is a user's message: an
    instruct model ends its turn only where it knows that it has one.

    Its answers are greedy and end at max_tokens; all longer ones are alike. A row it cannot answer, or has no room in
    its context to end, is predicted at request.max_output_tokens.

    options: the engine's. Say kv_tokens or kv_memory: an engine takes all the memory it finds if it is not told, and
    here another one needs it.

    Raises what Engine raises, and UsageError for a model without tokenizer, at the first call.
    """

    def __init__(self, model: str, text_of: TextOf, max_tokens: int = DEFAULT_MAX_TOKENS, **options: Any) -> None:
        self._model = model
        self._text_of = text_of
        self._max_tokens = max_tokens
        self._options = options
        self._engine: EngineCore | None = None

    def __call__(self, requests: Sequence[Request]) -> list[int]:
        engine = self._opened()
        params = [self._params(request) for request in requests]
        completions = generate(engine, [self._encode(engine, request) for request in requests], params)
        answers = zip(requests, params, completions, strict=True)
        return [
            len(answer.token_ids) if _has_ended(answer, asked) else request.max_output_tokens
            for request, asked, answer in answers
        ]

    def close(self) -> None:
        """Give the small model's memory back. A later call loads it again."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def _opened(self) -> EngineCore:
        if self._engine is None:
            engine = EngineCore(self._model, **self._options)
            if engine.tokenizer is None:
                engine.close()
                raise UsageError(f"{self._model} has no tokenizer: a model that predicts lengths must read text")
            self._engine = engine
        return self._engine

    def _encode(self, engine: EngineCore, request: Request) -> list[int]:
        assert engine.tokenizer is not None
        text = self._text_of(request)
        if not engine.tokenizer.has_chat_template:
            return engine.tokenizer.encode_prompt(text)
        try:
            return engine.tokenizer.encode_messages([{"role": "user", "content": text}])
        except RowError:
            return []  # the template refuses it; without tokens the engine does too

    def _params(self, request: Request) -> SamplingParams:
        """The request's own end, as far as it is text: stop token ids are of another vocabulary."""
        return SamplingParams(
            max_tokens=max(1, min(self._max_tokens, request.max_output_tokens)),
            stop=request.sampling.stop,
            ignore_eos=request.sampling.ignore_eos,
        )


def _has_ended(answer: Completion, asked: SamplingParams) -> bool:
    """Whether it ended by itself or at the tokens it was given, and not at the end of the model's context."""
    return answer.finish_reason == "stop" or len(answer.token_ids) == asked.max_tokens
