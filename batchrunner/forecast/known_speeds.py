"""How fast this machine computes a model, as far as that is known before a run."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from batchrunner.engine.model.speeds import Speeds
from batchrunner.forecast.kept_speeds import KeptSpeeds
from batchrunner.simulate.cost.device import Device
from batchrunner.simulate.cost.model_shape import ModelShape
from batchrunner.spec.engine import EngineConfig

if TYPE_CHECKING:
    import torch

UNCERTAINTY_MEASURED = 0.15
UNCERTAINTY_PROBED = 0.5
LIKE = {"cpu": "cpu", "cuda": "h100-sxm"}  # of devices.yaml


@dataclass(frozen=True, slots=True)
class KnownSpeeds:
    """source: where they are from, for people. uncertainty: of a duration that rests on them, as a share."""

    speeds: Speeds
    source: str
    uncertainty: float


def known_speeds(shape: ModelShape, config: EngineConfig, device: "torch.device") -> KnownSpeeds:
    """What an earlier run of this model has measured, or else half a second of measuring the machine alone."""
    kept = KeptSpeeds.of(repr(shape), config, device.type).speeds
    if kept is not None:
        return KnownSpeeds(kept, "measured in an earlier run of this model here", UNCERTAINTY_MEASURED)
    import torch

    from batchrunner.engine.model.probe import MODEL_SHARE, probe

    dtype = getattr(torch, config.dtype_on(device.type).replace("auto", "bfloat16"))
    speeds = probe(device, dtype).times(MODEL_SHARE)
    return KnownSpeeds(
        speeds, "a quick probe of this machine; no run has measured the model here yet", UNCERTAINTY_PROBED
    )


def assumed_speeds(device_kind: str) -> Speeds:
    """Of a machine of this kind, where nothing was measured: what the steps of a run are fitted from."""
    return Device.load(LIKE[device_kind]).speeds
