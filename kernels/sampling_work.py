"""How the next tokens of a step are chosen: the parameters of each row of logits."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class SamplingWork:
    """S rows. Temperature 0 takes the largest logit; top_k 0, top_p 1 and min_p 0 are off.

    [S] each, but for the keys [S, 2]: the low and the high half of a key of 128 bits. A row's random number is the
    first of numpy's Philox stream with its key, and its position as the counter.
    """

    temperatures: npt.NDArray[np.float64]
    top_ks: npt.NDArray[np.int64]
    top_ps: npt.NDArray[np.float64]
    min_ps: npt.NDArray[np.float64]
    keys: npt.NDArray[np.uint64]
    positions: npt.NDArray[np.int64]
