"""The engine: requests in, tokens out, one step at a time."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from batchrunner.engine.allocate import allocate_memory
from batchrunner.engine.counters import Counters
from batchrunner.engine.kv.tiers.keeping import keep_prefixes
from batchrunner.engine.model.device import device_for
from batchrunner.engine.model.fingerprint import model_fingerprint
from batchrunner.engine.model.model_files import ModelFiles, find_model
from batchrunner.engine.model.model_runner import ModelRunner
from batchrunner.engine.model.step_times import StepTimes
from batchrunner.engine.options import engine_config
from batchrunner.engine.request import Completion, Request
from batchrunner.engine.scheduling.build_scheduler import build_scheduler, limits_for
from batchrunner.engine.scheduling.predictors.build_predictor import build_predictor
from batchrunner.engine.scheduling.predictors.history import History
from batchrunner.engine.scheduling.predictors.small_model import AnswerLengths
from batchrunner.engine.scheduling.quarantine import Quarantine
from batchrunner.engine.step_runner import StepRunner
from batchrunner.engine.text.stop_strings import cut_at_stop
from batchrunner.errors import RowError, TierError, UsageError
from batchrunner.spec.sampling import SamplingParams


class EngineCore:
    """A loaded model with its scheduler, KV pool and prefix cache: requests are added, and every step brings tokens.

    Use it as a context manager. small_model: what the model that `lengths` names answers; None where it names none. See
    Engine for the rest.
    """

    def __init__(
        self,
        model: str | Path | ModelFiles,
        history: History | None = None,
        small_model: AnswerLengths | None = None,
        **options: Any,
    ) -> None:
        self.config = engine_config(options)
        self.files = model if isinstance(model, ModelFiles) else find_model(str(model))
        device = device_for(self.config)
        self.device_kind = device.type
        self.tokenizer = self.files.tokenizer
        runner = ModelRunner(self.files, device, self.config.dtype, self.config.quantization)
        self.context_len = runner.context_len
        self.eos_token_ids = runner.eos_token_ids
        self.fingerprint = model_fingerprint(self.files, self.config)
        identity = f"{self.fingerprint}-block{self.config.block_size}"
        memory = allocate_memory(self.config, runner, limits_for(self.config, device.type), identity)
        self.budget = memory.budget
        self._disk = memory.disk
        self.runner: StepRunner = runner
        self._is_closed = False
        self._is_between_steps = True
        self.predictor = build_predictor(self.config, self.prompt_text, history or History(), small_model)
        self.scheduler = build_scheduler(
            self.config,
            memory.budget.num_blocks,
            memory.limits,
            self.predictor,
            memory.foresight,
            memory.tiers,
            memory.costs,
        )
        self.quarantine = Quarantine(self.scheduler)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the model's and the cache's memory back; what the disk tier keeps is written before."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._keep_prefixes()
        finally:
            self.runner.close()

    def _keep_prefixes(self) -> None:
        """In the middle of a step nobody knows which blocks hold what they should: then nothing is kept."""
        disk = self._disk
        if disk is None or not disk.is_kept or not self._is_between_steps:
            return
        try:
            self.runner.move(keep_prefixes(self.scheduler.cache, self.scheduler.tables.below.tiers, disk))
        except TierError as error:  # no answer is lost by it
            warnings.warn(f"the KV cache is not kept for the next run: {error}", stacklevel=3)

    @property
    def counters(self) -> Counters:
        return self.scheduler.counters

    @property
    def kernels(self) -> str:
        """Which kernels compute, and how much of the model's own code they stand in for."""
        return str(self.runner.substitutions)

    @property
    def step_times(self) -> StepTimes:
        return self.runner.step_times

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
    def num_seats(self) -> int:
        """How many requests may run at once: max_running, or fewer while KV memory is too small for them."""
        return self.scheduler.congestion.seats

    @property
    def kv_use(self) -> float:
        """Share of the pool's blocks that running requests hold."""
        pool = self.scheduler.pool
        return 1 - self.scheduler.tables.num_available / pool.num_blocks

    def request(
        self,
        request_id: str,
        prompt_token_ids: Sequence[int],
        sampling: SamplingParams,
        saved: Sequence[int] = (),
        priority: int = 0,
        group: str = "",
        num_shared_later: int = 0,
    ) -> Request:
        """Make a request. saved: output tokens it had already before an interruption; it goes on after them.

        group: requests of one template have the same, so that lengths of earlier answers predict those of later ones.
        num_shared_later: so many of its first tokens will be asked for by requests that are not added yet.
        """
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
            priority=priority,
            group=group,
            num_shared_later=num_shared_later,
        )
        for token_id in saved:
            request.append(token_id)
        return request

    def prepare(self, requests: Sequence[Request]) -> None:
        """Tell the length predictor of requests that will be added: a model predicts many at once."""
        self.predictor.prepare(requests)

    def add(self, request: Request) -> None:
        """Queue a request. Raises RowError if it can never be answered; nothing else is touched then."""
        self.scheduler.add(request)

    def step(self) -> list[Request]:
        """Run one step for all running requests; returns those that ended with it."""
        self._is_between_steps = False
        schedule = self.scheduler.schedule()
        try:
            token_ids = self.runner.run(schedule)
        except TierError:  # no row is to blame
            self.scheduler.abandon(schedule)
            self._is_between_steps = True
            raise
        except Exception as error:  # whatever a model can do wrong: one row must not take the others with it
            culprits = self.quarantine.failed(schedule, error)
            self._is_between_steps = True
            return culprits
        finished = self.scheduler.update(schedule, token_ids)
        self.quarantine.passed(schedule)
        self._is_between_steps = True
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

    def encode(self, prompt: str | Sequence[int]) -> list[int]:
        """A prompt's token ids. Raises UsageError for a text if the model has no tokenizer."""
        if not isinstance(prompt, str):
            return list(prompt)
        if self.tokenizer is None:
            raise UsageError(f"{self.files.folder} has no tokenizer: give prompts as token ids")
        return self.tokenizer.encode_prompt(prompt)

    def prompt_text(self, request: Request) -> str:
        return "" if self.tokenizer is None else self.tokenizer.decode(request.token_ids[: request.num_prompt_tokens])

    def _text(self, request: Request) -> str:
        if self.tokenizer is None:
            return ""
        token_ids = request.output_token_ids
        if token_ids and token_ids[-1] in request.sampling.stop_token_ids:
            token_ids = token_ids[:-1]
        return cut_at_stop(self.tokenizer.decode(token_ids), request.sampling.stop)
