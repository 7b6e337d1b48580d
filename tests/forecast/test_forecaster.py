"""The forecast of a run: whole where it is short, from parts of its order where it is long."""

from dataclasses import replace

import numpy as np
import pytest

from batchrunner.engine.model.speeds import Speeds
from batchrunner.forecast import forecaster as forecast
from batchrunner.forecast.forecaster import Forecaster, PlannedRows
from batchrunner.forecast.parts import RunForecast
from batchrunner.simulate.cost.model_shape import ModelShape
from batchrunner.simulate.load.loads import SimRow, shared_prefixes
from batchrunner.simulate.load.prompt_order import PromptOrder
from batchrunner.spec.engine import EngineConfig

SHAPE = ModelShape.named("llama-3.1-8b")
SPEEDS = Speeds(flops_per_second=5e14, bytes_per_second=2e12)


def planned(rows: list[SimRow]) -> PlannedRows:
    order = PromptOrder.of(rows)
    num_prompt = np.array([len(rows[row].token_ids) for row in order.by_prefix])
    num_shared = np.array([order.num_shared[row] for row in order.by_prefix])
    num_output = np.array([rows[row].num_output_tokens for row in order.by_prefix])
    num_new = num_prompt - np.minimum(num_shared, num_prompt - 1)
    ordered = [rows[row] for row in order.by_prefix]
    total = int(num_new.sum())
    return PlannedRows(
        num_prompt, num_new, num_output, total, lambda places, lengths: [ordered[place] for place in places]
    )


def forecast_of(rows: PlannedRows, num_blocks: int = 20_000, num_host: int = 0, **options: object) -> RunForecast:
    config = EngineConfig.model_validate({"max_running": 32, **options})
    return Forecaster(config, SHAPE, SPEEDS, "cuda", num_blocks, num_host).forecast(rows)


def test_with_memory_enough_the_tokens_are_those_of_the_tree() -> None:
    rows = planned(shared_prefixes(200, 10, 100, 20, 8))
    found = forecast_of(rows)
    assert found.num_to_compute == rows.num_new.sum() == 10 * 100 + 200 * 20
    assert found.most_running == 32
    assert found.num_refused == 0
    assert 32 * 28 <= found.peak_kv_tokens <= 32 * 48 + 4 * 112


def test_without_memory_enough_tokens_are_computed_again() -> None:
    rows = planned(shared_prefixes(60, 3, 10, 20, 200))
    assert forecast_of(rows, num_blocks=80, preemption="recompute").num_to_compute > rows.num_new.sum()


@pytest.mark.parametrize("num_prefixes", [4, 100])
def test_parts_of_a_long_run_say_what_all_of_it_says(monkeypatch: pytest.MonkeyPatch, num_prefixes: int) -> None:
    rows = planned(shared_prefixes(2000, num_prefixes, 100, 20, 16))
    whole = forecast_of(rows)
    monkeypatch.setattr(forecast, "MAX_ROWS", 500)
    parts = forecast_of(rows)
    assert parts.num_to_compute == whole.num_to_compute
    for name in ("seconds", "compute_seconds", "memory_seconds", "num_steps", "peak_kv_tokens"):
        assert getattr(parts, name) == pytest.approx(getattr(whole, name), rel=0.06), name


def test_rows_that_never_fit_are_refused() -> None:
    rows = planned(shared_prefixes(4, 2, 100, 20, 8))
    assert forecast_of(rows, num_blocks=4).num_refused == 4


def test_other_lengths_are_tried_on_the_same_rows() -> None:
    rows = planned([SimRow([number] * 5, 9, 9, number + 1) for number in range(40)])
    short = rows.with_output(np.ones(40, dtype=np.int64))
    given = replace(
        short, rows=lambda places, lengths: [SimRow([place] * 5, 9, 1, place + 1) for place in places.tolist()]
    )
    assert forecast_of(given).num_steps < forecast_of(rows).num_steps


def test_where_answers_are_long_the_average_step_says_about_what_all_of_them_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = planned(shared_prefixes(800, 8, 100, 20, 100))
    whole = forecast_of(rows)
    monkeypatch.setattr(forecast, "MAX_OUTPUT_TOKENS", 5_000)
    average = forecast_of(rows)
    assert average.num_to_compute == whole.num_to_compute
    for name in ("seconds", "compute_seconds", "num_steps", "most_running"):
        assert getattr(average, name) == pytest.approx(getattr(whole, name), rel=0.2), name


@pytest.mark.parametrize("num_rows", [1, 2100])
def test_any_number_of_rows_of_any_length_has_a_forecast(num_rows: int) -> None:
    rows = planned([SimRow([number], 500_000, 500_000, number + 1) for number in range(num_rows)])
    assert forecast_of(rows, num_blocks=100_000).seconds > 0


def test_a_long_run_whose_rows_are_all_refused_takes_no_time() -> None:
    rows = planned([SimRow([number] * 40, 4, 4, number + 1) for number in range(2100)])
    assert forecast_of(rows, num_blocks=2).num_refused == 2 * 1000
