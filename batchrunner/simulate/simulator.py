"""The engine's own scheduler, tiers and policies over a cost model: a clock in place of a model.

The loop is the engine's: schedule, run, update. Running a step moves the clock by what the cost model says, and samples
each request's next token from what the load says its answer is.
"""

from collections.abc import Sequence
from contextlib import ExitStack

from batchrunner.engine.kv.places import Place
from batchrunner.engine.kv.swap_choice import MeasuredCosts
from batchrunner.engine.kv.tiers.tier import Tier
from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.build_scheduler import build_foresight, build_scheduler, limits_for
from batchrunner.engine.scheduling.predictors.build_predictor import build_predictor
from batchrunner.engine.scheduling.predictors.history import History
from batchrunner.engine.scheduling.predictors.predictor import LengthPredictor, TextOf
from batchrunner.engine.scheduling.predictors.small_model import AnswerLengths
from batchrunner.engine.scheduling.scheduler import Scheduler
from batchrunner.errors import UsageError
from batchrunner.simulate.cost.device import Device
from batchrunner.simulate.cost.least_work import LeastWork
from batchrunner.simulate.cost.model_shape import ModelShape
from batchrunner.simulate.cost.roofline import Roofline
from batchrunner.simulate.cost.sizes import Sizes, device_kind, measured_costs
from batchrunner.simulate.cost.step_costs import StepCosts
from batchrunner.simulate.load.arrivals import Arrivals
from batchrunner.simulate.load.loads import SimRow
from batchrunner.simulate.load.prompt_order import PromptOrder
from batchrunner.simulate.planned_queue import planned_queue
from batchrunner.simulate.report import SimReport
from batchrunner.simulate.sim_run import Machine, SimRun
from batchrunner.spec.engine import EngineConfig, SmallModel


class Simulator:
    """An engine of this configuration on this device.

    costs: of the steps; None: the roofline of shape on device. text_of: a request's prompt as text, for predictors
    that read it.

    Raises DeviceError for a pool that does not fit the device, UsageError for a predictor that cannot be had.
    """

    def __init__(
        self,
        config: EngineConfig,
        shape: ModelShape,
        device: Device,
        costs: StepCosts | None = None,
        text_of: TextOf | None = None,
    ) -> None:
        if text_of is None and config.lengths not in ("history", "max_tokens"):
            raise UsageError(
                "engine.lengths: a predictor that reads prompts needs their text, and these rows have none; "
                "choose history or max_tokens"
            )
        self.config = config
        self.sizes = Sizes.of(config, shape, device)
        self.limits = limits_for(config, device_kind(device))
        self.costs = costs or Roofline(shape, device, config.block_size)
        self._shape = shape
        self._device = device
        self._text_of = text_of or _no_text

    def run(
        self, rows: Sequence[SimRow], predictor: LengthPredictor | None = None, queue: Sequence[int] | None = None
    ) -> SimReport:
        """Answer the rows. predictor: in place of the configured one (Oracle: the lengths are known). queue: the rows
        in the order in which they are asked; None: as the policy says."""
        order = PromptOrder.of(rows)
        measured = measured_costs(self.config.block_size, self.costs, self.limits)
        if queue is None:
            queue = planned_queue(rows, self.config, self._shape, self._device, self.limits, self.sizes)
        arrivals = Arrivals(rows, queue)
        with ExitStack() as on_close:
            if predictor is None:
                small_model = self._small_model(on_close)
                predictor = build_predictor(self.config, self._text_of, History(), small_model)
            sizes = self.sizes.at_most(_most_blocks(rows, self.config.block_size) + self.limits.max_running)
            scheduler = self._scheduler(sizes, measured, predictor)
            machine = Machine(self.costs, measured, self._device.scheduling_seconds, self.sizes.pool)
            run = SimRun(rows, arrivals, scheduler, machine, self._shape.max_position)
            run.run()
        work = LeastWork.of(rows, list(run.tally.end_seconds), order, self.limits.max_running)
        least = self.costs.least_seconds(work)
        return SimReport.of(run.tally, scheduler.counters, arrivals.ready_seconds, least, self.sizes.pool)

    def _small_model(self, on_close: ExitStack) -> AnswerLengths | None:
        """The one that `lengths` names is run, not simulated."""
        spec = self.config.lengths
        if not isinstance(spec, SmallModel):
            return None
        from batchrunner.generate.small_model import small_model_for  # loads torch

        answers = small_model_for(spec, self.config.device, self._text_of)
        on_close.callback(answers.close)
        return answers

    def _scheduler(self, sizes: Sizes, measured: MeasuredCosts, predictor: LengthPredictor) -> Scheduler:
        foresight = build_foresight(self.config)
        below = {Place.HOST: sizes.host, Place.DISK: sizes.disk}
        tiers = [Tier(place, size, foresight) for place, size in below.items() if size]
        return build_scheduler(self.config, sizes.pool, self.limits, predictor, foresight, tiers, measured)


def _most_blocks(rows: Sequence[SimRow], block_size: int) -> int:
    return sum(-(-(len(row.token_ids) + row.max_tokens) // block_size) for row in rows)


def _no_text(request: Request) -> str:
    raise AssertionError("a predictor that needs no text asked for it")
