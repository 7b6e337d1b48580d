"""How fast a device computes one model."""

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Speeds:
    """What a step reaches, not what the device could do at best. overhead_seconds: of every step, whatever it does."""

    flops_per_second: float
    bytes_per_second: float
    overhead_seconds: float = 0.0

    def times(self, share: float) -> Self:
        """As many times as fast."""
        return type(self)(
            self.flops_per_second * share, self.bytes_per_second * share, overhead_seconds=self.overhead_seconds / share
        )
