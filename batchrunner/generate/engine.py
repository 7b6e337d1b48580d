"""The Engine of the Python API: the engine's core, and above it what asks it many prompts at once."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from batchrunner.engine.engine import EngineCore
from batchrunner.engine.model.model_files import ModelFiles
from batchrunner.engine.options import engine_config
from batchrunner.engine.request import Completion
from batchrunner.engine.scheduling.predictors.history import History
from batchrunner.generate.generate import generate
from batchrunner.generate.small_model import small_model_for
from batchrunner.spec.engine import SmallModel
from batchrunner.spec.sampling import SamplingParams


class Engine(EngineCore):
    """A loaded model with its scheduler, KV pool and prefix cache. Use it as a context manager.

    model: a folder in Hugging Face layout, a .gguf file, package:NAME/FILE, or a hub id. The options are those of
    `engine:` in a job file (EngineConfig). history: lengths of earlier answers, by group; with `lengths: history` it
    learns on. Raises ModelError, DeviceError, StorageError (the disk tier), UsageError (unknown option).
    """

    def __init__(self, model: str | Path | ModelFiles, history: History | None = None, **options: Any) -> None:
        config, self._small_model = engine_config(options), None
        if isinstance(config.lengths, SmallModel):
            self._small_model = small_model_for(config.lengths, config.device, self.prompt_text)
        super().__init__(model, history, self._small_model, **options)

    def close(self) -> None:
        """Give the model's and the cache's memory back; what the disk tier keeps is written before."""
        try:
            super().close()
        finally:
            if self._small_model is not None:
                self._small_model.close()

    def generate(
        self,
        prompts: Sequence[str | Sequence[int]],
        sampling: SamplingParams | Sequence[SamplingParams] | None = None,
        on_finished: Callable[[int], None] | None = None,
    ) -> list[Completion]:
        """Answer prompts (texts, or token ids) and return the completions in their order.

        sampling: one for all or one for each. on_finished is told the index of each prompt as it ends. A prompt that
        cannot be answered has a completion with `error` set; the others are unharmed.

        Raises UsageError if the numbers of prompts and of sampling parameters differ, or for a text without tokenizer.
        """
        return generate(self, prompts, sampling, on_finished)
