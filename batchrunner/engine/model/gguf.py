"""A .gguf file as a folder in Hugging Face layout."""

import contextlib
import io
from pathlib import Path
from typing import Any

from batchrunner.errors import ModelError

FORMAT = 1  # raise it when the conversion changes what it writes


def convert_gguf(path: Path, target: Path) -> None:
    """Write it as safetensors in float32, with its tokenizer. Raises ModelError."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # the reader of GGUF has a bar that nothing else turns off
            tokenizer: Any = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
            model: Any = AutoModelForCausalLM.from_pretrained(
                str(path.parent), gguf_file=path.name, dtype=torch.float32
            )
    except Exception as error:  # a broken or unknown file fails anywhere in two libraries
        raise ModelError(f"model {path}: cannot be read as GGUF: {type(error).__name__}: {error}") from error
    # What was loaded is plain float32; saved as it stands it would claim to be quantised still.
    dropped = ("quantization_config", "_model_name_or_path")
    settings = {key: value for key, value in model.config.to_dict().items() if key not in dropped}
    plain = type(model)(type(model.config)(**settings)).float()
    plain.load_state_dict(model.state_dict())
    plain.generation_config.eos_token_id = tokenizer.eos_token_id
    plain.save_pretrained(target)
    tokenizer.save_pretrained(target)
