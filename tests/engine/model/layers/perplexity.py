"""How well a loaded model predicts a text that ships with the tests: queries of Newton's Opticks, 4th edition, 1730."""

import math
from dataclasses import dataclass
from pathlib import Path

import torch

from batchrunner.engine.model.layers.dry_run import DryRun, DryWork
from batchrunner.engine.model.model_files import find_model
from batchrunner.engine.model.model_runner import ModelRunner
from batchrunner.engine.text.tokenizer import Tokenizer

TEXT = Path(__file__).with_name("opticks.txt")
WINDOW = 512  # tokens of context at most


@dataclass(frozen=True)
class Prediction:
    """perplexity: e to the mean negative log-likelihood. greedy [N]: the most probable token after each position."""

    perplexity: float
    greedy: torch.Tensor

    def share_equal(self, other: "Prediction") -> float:
        return float((self.greedy == other.greedy).float().mean())


@torch.inference_mode()
def predict(model: str, quantization: str | None, num_windows: int | None = None) -> Prediction:
    files = find_model(model)
    runner = ModelRunner(files, torch.device("cpu"), "float32", quantization)
    token_ids = Tokenizer(files.folder).encode_prompt(TEXT.read_text(encoding="utf-8"))
    windows = [token_ids[start : start + WINDOW] for start in range(0, len(token_ids) - WINDOW + 1, WINDOW)]
    total, greedy = 0.0, []
    for window in windows[:num_windows]:
        dry_run = DryRun(runner.model, runner.layers, runner.kernels, DryWork.one_prompt(WINDOW))
        logits = runner.head.logits(dry_run.forward(window))
        next_token_ids = torch.tensor(window[1:])[:, None]
        total -= float(logits[:-1].log_softmax(dim=-1).gather(1, next_token_ids).double().mean())
        greedy.append(logits.argmax(dim=-1))
    return Prediction(math.exp(total / len(greedy)), torch.cat(greedy))
