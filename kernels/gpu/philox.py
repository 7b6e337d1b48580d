"""numpy's random numbers on the device: the first double of Philox4x64-10 at a key and a counter.

    word = Philox4x64-10(key, counter = position + 1)[0]        uniform = (word >> 11) / 2^53

(Salmon et al., SC 2011). numpy advances the counter before it draws, hence the 1.
"""

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def uniform(key_low, key_high, position):
    """The double in [0, 1) at int64 position, for the int64 bits of the low and the high half of the key."""
    counter = (position + 1).to(tl.uint64)
    zero = counter ^ counter
    word, _, _, _ = tl.philox_impl(counter, zero, zero, zero, key_low.to(tl.uint64), key_high.to(tl.uint64))
    return (word >> 11).to(tl.float64) * (1.0 / (1 << 53))


def uniform_reference(keys: Tensor, positions: Tensor) -> Tensor:
    """The twin of uniform in numpy: [S] float64 for keys [S, 2] and positions [S], int64."""
    drawn = []
    for key, position in zip(keys.tolist(), positions.tolist(), strict=True):
        bit_generator = np.random.Philox(key=np.array(key, dtype=np.int64).view(np.uint64), counter=position)
        drawn.append(np.random.Generator(bit_generator).random())
    return torch.tensor(drawn, dtype=torch.float64)
