"""Many prompts at once, answered in their order: what Engine.generate does."""

from collections import Counter
from collections.abc import Callable, Sequence

from batchrunner.engine.engine import EngineCore
from batchrunner.engine.request import Completion, Request
from batchrunner.errors import RowError, UsageError
from batchrunner.generate.planned_order import planned_order
from batchrunner.identity import question_digest, request_id
from batchrunner.spec.sampling import SamplingParams


def generate(
    engine: EngineCore,
    prompts: Sequence[str | Sequence[int]],
    sampling: SamplingParams | Sequence[SamplingParams] | None = None,
    on_finished: Callable[[int], None] | None = None,
) -> list[Completion]:
    """See Engine.generate."""
    if isinstance(prompts, str):
        raise UsageError("generate() takes a list of prompts; put the text into a list")
    params = _one_for_each(sampling, len(prompts))
    token_ids = [engine.encode(prompt) for prompt in prompts]
    completions: list[Completion | None] = [None] * len(prompts)
    index_of: dict[Request, int] = {}
    occurrences: Counter[bytes] = Counter()
    for index in range(len(prompts)):
        question = question_digest(token_ids[index], params[index])
        name = request_id(engine.fingerprint, question, occurrences[question]).hex()
        occurrences[question] += not params[index].is_greedy
        try:
            index_of[engine.request(name, token_ids[index], params[index])] = index
        except RowError as error:
            completions[index] = _failed(error, token_ids[index])
    engine.prepare(list(index_of))
    requests, indexes = list(index_of), list(index_of.values())
    order = planned_order(engine, [token_ids[index] for index in indexes], [params[index] for index in indexes])
    for place in order:
        request, index = requests[place], indexes[place]
        try:
            engine.add(request)
        except RowError as error:
            completions[index] = _failed(error, token_ids[index_of.pop(request)])
    while index_of:
        for request in engine.step():
            index = index_of.pop(request)
            completions[index] = engine.completion(request)
            if on_finished is not None:
                on_finished(index)
    return [completion for completion in completions if completion is not None]


def _failed(error: RowError, token_ids: Sequence[int]) -> Completion:
    return Completion("", (), "error", len(token_ids), 0, error=error)


def _one_for_each(sampling: SamplingParams | Sequence[SamplingParams] | None, count: int) -> list[SamplingParams]:
    if sampling is None:
        sampling = SamplingParams()
    if isinstance(sampling, SamplingParams):
        return [sampling] * count
    if len(sampling) != count:
        raise UsageError(f"{count} prompts, but {len(sampling)} sampling parameters; give one, or one for each prompt")
    return list(sampling)
