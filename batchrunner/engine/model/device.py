"""The device that a model is run on."""

import torch

from batchrunner.errors import DeviceError
from batchrunner.spec.engine import EngineConfig


def choose_device(name: str) -> torch.device:
    """Raises DeviceError if the device asked for is not there."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise DeviceError("engine.device: cuda: no CUDA device is available; use device: cpu or auto")
    return torch.device(name)


def device_for(config: EngineConfig) -> torch.device:
    """auto means the CPU where the linear layers are to be in int8. Raises DeviceError."""
    return choose_device("cpu" if config.quantization and config.device == "auto" else config.device)
