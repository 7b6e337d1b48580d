"""The predictor that `engine.lengths` names."""

from batchrunner.engine.scheduling.predictors.history import History
from batchrunner.engine.scheduling.predictors.known import KnownLengths
from batchrunner.engine.scheduling.predictors.max_tokens import MaxTokens
from batchrunner.engine.scheduling.predictors.predictor import LengthPredictor, TextOf
from batchrunner.engine.scheduling.predictors.signals import Signals
from batchrunner.engine.scheduling.predictors.small_model import AnswerLengths, SmallModel
from batchrunner.spec.engine import EngineConfig


def build_predictor(
    config: EngineConfig, text_of: TextOf, history: History, small_model: AnswerLengths | None
) -> LengthPredictor:
    """text_of: a request's prompt as text. history: of earlier runs. small_model: where `lengths` names one."""
    if config.lengths == "max_tokens":
        return MaxTokens()
    if config.lengths == "history":
        return KnownLengths(history)
    if config.lengths == "signals":
        return KnownLengths(Signals(text_of))
    assert small_model is not None, "whoever asks for a small model opens it"
    return KnownLengths(SmallModel(small_model))
