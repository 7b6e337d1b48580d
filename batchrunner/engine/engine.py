"""The engine: requests in, tokens out, one step at a time."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

from pydantic import ValidationError

from batchrunner.engine.batching import ContinuousBatching, StaticBatching
from batchrunner.engine.block_pool import BlockPool
from batchrunner.engine.fingerprint import model_fingerprint
from batchrunner.engine.memory import num_kv_blocks
from batchrunner.engine.model_runner import ModelRunner, device_for
from batchrunner.engine.models import ModelFiles, find_model
from batchrunner.engine.prefix_cache import PrefixCache
from batchrunner.engine.quarantine import Quarantine
from batchrunner.engine.request import Completion, Request
from batchrunner.engine.schedule import Counters, Schedule
from batchrunner.engine.scheduler import Limits, Scheduler
from batchrunner.engine.tokenizer import Tokenizer, cut_at_stop
from batchrunner.errors import RowError, UsageError
from batchrunner.identity import request_digest, with_occurrence
from batchrunner.spec import EngineConfig, SamplingParams

# Matrix products of 2 CPU cores gain nothing beyond 256 rows: 409 tokens/s at 256, 192 to 344 at 512 (MKL).
AUTO_MAX_RUNNING = {"cpu": 128, "cuda": 1024}
AUTO_MAX_BATCH_TOKENS = {"cpu": 256, "cuda": 8192}


class Runner(Protocol):
    """What the engine needs of a ModelRunner."""

    @property
    def vocabulary_size(self) -> int: ...
    @property
    def substitutions(self) -> object: ...
    def run(self, schedule: Schedule) -> list[int]: ...
    def close(self) -> None: ...


class Engine:
    """A loaded model with its scheduler, KV pool and prefix cache. Use it as a context manager.

    model: a folder in Hugging Face layout, a .gguf file, package:NAME/FILE, or a hub id. The options are those of
    `engine:` in a job file (EngineConfig).

    Raises ModelError, DeviceError, UsageError (unknown option).
    """

    def __init__(self, model: str | Path | ModelFiles, **options: Any) -> None:
        self.config = _engine_config(options)
        self.files = model if isinstance(model, ModelFiles) else find_model(str(model))
        device = device_for(self.config)
        self.tokenizer = Tokenizer(self.files.folder) if self.files.has_tokenizer else None
        runner = ModelRunner(self.files, device, self.config.dtype, self.config.quantization)
        self.context_len = runner.context_len
        self.eos_token_ids = runner.eos_token_ids
        self.fingerprint = model_fingerprint(self.files, self.config)
        num_blocks = num_kv_blocks(self.config, runner.kv_bytes_per_token, device)
        runner.allocate(num_blocks, self.config.block_size)
        if self.config.has_fixed_pool:
            runner.reserve()
        self.runner: Runner = runner
        self.scheduler = build_scheduler(self.config, num_blocks, device.type)
        self.quarantine = Quarantine(self.scheduler)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the model's and the cache's memory back."""
        self.runner.close()

    @property
    def counters(self) -> Counters:
        return self.scheduler.counters

    @property
    def kernels(self) -> str:
        """Which kernels compute, and how much of the model's own code they stand in for."""
        return str(self.runner.substitutions)

    @property
    def has_unfinished(self) -> bool:
        return self.scheduler.has_unfinished

    @property
    def num_running(self) -> int:
        return len(self.scheduler.running)

    @property
    def num_waiting(self) -> int:
        return len(self.scheduler.waiting)

    @property
    def kv_use(self) -> float:
        """Share of the pool's blocks that running requests hold."""
        pool = self.scheduler.pool
        return 1 - (pool.num_free + self.scheduler.cache.num_evictable) / pool.num_blocks

    def request(
        self, request_id: str, prompt_token_ids: Sequence[int], sampling: SamplingParams, saved: Sequence[int] = ()
    ) -> Request:
        """Make a request. saved: output tokens it had already before an interruption; it goes on after them."""
        vocabulary = self.runner.vocabulary_size
        if not all(0 <= token_id < vocabulary for token_id in prompt_token_ids):
            raise RowError(
                "bad_token_id", f"the prompt has a token id outside the model's vocabulary of {vocabulary:,}"
            )
        matcher = None
        if sampling.stop:
            if self.tokenizer is None:
                raise RowError("no_tokenizer", "stop strings need a tokenizer, and the model folder has none")
            matcher = self.tokenizer.stop_matcher(sampling.stop)
        request = Request(
            request_id=request_id,
            token_ids=list(prompt_token_ids),
            num_prompt_tokens=len(prompt_token_ids),
            sampling=sampling,
            eos_token_ids=self.eos_token_ids,
            max_total_tokens=self.context_len,
            stop_matcher=matcher,
        )
        for token_id in saved:
            request.append(token_id)
        return request

    def add(self, request: Request) -> None:
        """Queue a request. Raises RowError if it can never be answered; nothing else is touched then."""
        self.scheduler.add(request)

    def step(self) -> list[Request]:
        """Run one step for all running requests; returns those that ended with it."""
        schedule = self.scheduler.schedule()
        try:
            token_ids = self.runner.run(schedule)
        except Exception as error:  # whatever a model can do wrong: one row must not take the others with it
            return self.quarantine.failed(schedule, error)
        finished = self.scheduler.update(schedule, token_ids)
        self.quarantine.passed(schedule)
        return finished

    def completion(self, request: Request) -> Completion:
        """The answer of a request that has ended."""
        assert request.finish_reason is not None, "the request is still running"
        return Completion(
            text=self._text(request),
            token_ids=tuple(request.output_token_ids),
            finish_reason=request.finish_reason,
            num_prompt_tokens=request.num_prompt_tokens,
            num_cached_tokens=request.num_cached_tokens,
            num_preemptions=request.num_preemptions,
            error=request.error,
        )

    def generate(
        self,
        prompts: Sequence[str | Sequence[int]],
        sampling: SamplingParams | Sequence[SamplingParams] | None = None,
        on_finished: Callable[[int], None] | None = None,
    ) -> list[Completion]:
        """Answer prompts (texts, or token ids) and return the completions in their order.

        sampling: one for all or one for each. on_finished is told the index of each prompt as it ends. A prompt that
        cannot be answered has a completion with `error` set; the others are unharmed.

        Raises UsageError if the numbers of prompts and of sampling parameters differ, or for a text without tokenizer.
        """
        if isinstance(prompts, str):
            raise UsageError("generate() takes a list of prompts; put the text into a list")
        params = _one_for_each(sampling, len(prompts))
        token_ids = [self._encode(prompt) for prompt in prompts]
        order: Iterable[int] = range(len(prompts))
        if self.config.policy == "prefix":
            order = sorted(order, key=token_ids.__getitem__)
        completions: list[Completion | None] = [None] * len(prompts)
        index_of: dict[Request, int] = {}
        occurrences: Counter[bytes] = Counter()
        for index in order:
            digest = request_digest(self.fingerprint, token_ids[index], params[index])
            request_id = with_occurrence(digest, occurrences[digest]).hex()
            occurrences[digest] += not params[index].is_greedy
            try:
                request = self.request(request_id, token_ids[index], params[index])
                self.add(request)
                index_of[request] = index
            except RowError as error:
                completions[index] = Completion("", (), "error", len(token_ids[index]), 0, error=error)
        while index_of:
            for request in self.step():
                index = index_of.pop(request)
                completions[index] = self.completion(request)
                if on_finished is not None:
                    on_finished(index)
        return [completion for completion in completions if completion is not None]

    def _encode(self, prompt: str | Sequence[int]) -> list[int]:
        if not isinstance(prompt, str):
            return list(prompt)
        if self.tokenizer is None:
            raise UsageError(f"{self.files.folder} has no tokenizer: give prompts as token ids")
        return self.tokenizer.encode_prompt(prompt)

    def _text(self, request: Request) -> str:
        if self.tokenizer is None:
            return ""
        token_ids = request.output_token_ids
        if token_ids and token_ids[-1] in request.sampling.stop_token_ids:
            token_ids = token_ids[:-1]
        return cut_at_stop(self.tokenizer.decode(token_ids), request.sampling.stop)


def build_scheduler(config: EngineConfig, num_blocks: int, device: str) -> Scheduler:
    max_running = AUTO_MAX_RUNNING[device] if config.max_running == "auto" else config.max_running
    max_tokens = AUTO_MAX_BATCH_TOKENS[device] if config.max_batch_tokens == "auto" else config.max_batch_tokens
    pool = BlockPool(num_blocks, config.block_size)
    batching = StaticBatching() if config.batching == "static" else ContinuousBatching()
    limits = Limits(max_running, max_tokens, config.prefix_caching)
    return Scheduler(pool, PrefixCache(pool), batching, limits)


def _engine_config(options: dict[str, Any]) -> EngineConfig:
    try:
        return EngineConfig(**options)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, item['loc'])) or 'engine'}: {item['msg']}" for item in error.errors()]
        raise UsageError("Engine: " + "; ".join(lines)) from error


def _one_for_each(sampling: SamplingParams | Sequence[SamplingParams] | None, count: int) -> list[SamplingParams]:
    if sampling is None:
        sampling = SamplingParams()
    if isinstance(sampling, SamplingParams):
        return [sampling] * count
    if len(sampling) != count:
        raise UsageError(f"{count} prompts, but {len(sampling)} sampling parameters; give one, or one for each prompt")
    return list(sampling)
