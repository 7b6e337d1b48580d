"""The predictor that `engine.lengths` names."""

from collections.abc import Callable
from contextlib import ExitStack

from batchrunner.engine.predictors.history import History
from batchrunner.engine.predictors.known import KnownLengths
from batchrunner.engine.predictors.max_tokens import MaxTokens
from batchrunner.engine.predictors.predictor import LengthPredictor
from batchrunner.engine.predictors.signals import Signals
from batchrunner.engine.predictors.small_model import SmallModel
from batchrunner.engine.predictors.small_model_engine import SmallModelAnswers
from batchrunner.engine.request import Request
from batchrunner.engine_spec import EngineConfig

SMALL_MODEL_KV_TOKENS = 8192  # beside the job's own model: enough for a few short answers at once


def build_predictor(
    config: EngineConfig, text_of: Callable[[Request], str], history: History, on_close: ExitStack
) -> LengthPredictor:
    """text_of: a request's prompt as text. history: of earlier runs. on_close gives back what the predictor takes."""
    if config.lengths == "max_tokens":
        return MaxTokens()
    if config.lengths == "history":
        return KnownLengths(history)
    if config.lengths == "signals":
        return KnownLengths(Signals(text_of))
    answers = SmallModelAnswers(
        config.lengths.model,
        text_of,
        device=config.device,
        kv_tokens=SMALL_MODEL_KV_TOKENS,
        preemption="recompute",  # without a host tier
    )
    on_close.callback(answers.close)
    return KnownLengths(SmallModel(answers))
