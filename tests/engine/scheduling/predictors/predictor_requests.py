"""Requests for tests of predictors: waiting ones, and ended ones with answers of known lengths."""

from batchrunner import SamplingParams
from batchrunner.engine.request import FinishReason, Request


def request(
    name: str = "r",
    *,
    prompt: int = 100,
    output: int = 0,
    group: str = "",
    max_tokens: int = 1000,
    context: int = 10**6,
    ignore_eos: bool = False,
    stop: tuple[str, ...] = (),
) -> Request:
    return Request(
        name,
        [7] * (prompt + output),
        prompt,
        SamplingParams(max_tokens=max_tokens, ignore_eos=ignore_eos, stop=stop),
        max_total_tokens=context,
        group=group,
    )


def ended(
    output: int, *, reason: FinishReason = "stop", name: str = "r", prompt: int = 100, group: str = ""
) -> Request:
    item = request(name, prompt=prompt, output=output, group=group)
    item.finish_reason = reason
    return item
