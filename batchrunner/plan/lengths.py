"""How long answers will be: as far as parameters and earlier answers tell."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
MIN_KNOWN = 8  # answers; fewer say little


@dataclass(frozen=True, slots=True)
class ExpectedLengths:
    """Tokens of each answer [n]: expected, and as they may come out, which spreads as answers do.

    source: what it rests on, for people. is_known: from the answers themselves or from earlier ones; else the longest
    allowed ones are all there is.
    """

    expected: npt.NDArray[np.float64]
    drawn: Ints
    source: str
    is_known: bool


def expect_lengths(
    num_prompt: Ints, limits: Ints, is_fixed: npt.NDArray[np.bool_], group: str, known: Mapping[str, Sequence[int]]
) -> ExpectedLengths:
    """limits: most tokens of each answer; is_fixed: the answer has as many (ignore_eos). known: lengths of earlier
    answers by class, as the engine's history predictor has them: "64:GROUP" for prompts of 64 to 127 tokens, "*:GROUP"
    for all. [n] each."""
    expected, drawn = limits.astype(np.float64), limits.copy()
    earlier = known.get(f"*:{group}", ())
    rng = np.random.default_rng(0)
    if len(earlier) >= MIN_KNOWN:
        classes = np.floor(np.log2(np.maximum(num_prompt, 1))).astype(np.int64)
        for number in np.unique(classes[~is_fixed]).tolist():
            of_class = known.get(f"{1 << number}:{group}", ())
            lengths = np.asarray(of_class if len(of_class) >= MIN_KNOWN else earlier)
            rows = np.flatnonzero((classes == number) & ~is_fixed)
            expected[rows] = np.minimum(lengths.mean(), limits[rows])
            drawn[rows] = np.clip(rng.choice(lengths, len(rows)), 1, limits[rows])
    if not len(limits):
        return ExpectedLengths(expected, drawn, "there are none", is_known=True)
    if is_fixed.all():
        return ExpectedLengths(expected, drawn, "ignore_eos: as long as max_tokens", is_known=True)
    if len(earlier) >= MIN_KNOWN:
        return ExpectedLengths(expected, drawn, f"{len(earlier):,} answers of this template", is_known=True)
    return ExpectedLengths(expected, drawn, "max_tokens: nothing is known of this template's answers", is_known=False)
