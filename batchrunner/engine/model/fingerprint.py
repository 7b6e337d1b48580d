"""What decides a model's answers, beside the question."""

from batchrunner.engine.model.device import device_for
from batchrunner.engine.model.layers.quantize import recipe
from batchrunner.engine.model.model_files import ModelFiles
from batchrunner.spec.engine import EngineConfig


def model_fingerprint(files: ModelFiles, config: EngineConfig) -> str:
    """A digest of the model's files and of the numbers they are computed in. Raises DeviceError."""
    dtype = config.dtype if config.dtype != "auto" else config.dtype_on(device_for(config).type)
    quantization = f"-int8-{recipe()}" if config.quantization else ""
    return f"{files.fingerprint}-{dtype}{quantization}"
