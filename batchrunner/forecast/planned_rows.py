"""The rows of a planned run as the simulator takes them."""

import pyarrow as pa

from batchrunner.forecast.forecaster import Ints, PlannedRows
from batchrunner.plan.run_plan import JobToPlan, RunPlan, joined
from batchrunner.simulate.load.loads import SimRow


def planned_rows(plan: RunPlan) -> PlannedRows:
    """The rows of all jobs in the order of the run, for a forecast."""

    def rows(places: Ints, num_output: Ints) -> list[SimRow]:
        found: list[SimRow] = []
        first = 0
        for asked, job in zip(plan.asked, plan.jobs, strict=True):
            chosen = (places >= first) & (places < first + len(job.order))
            seeds = places[chosen] + 1
            found += _sim_rows(asked, job.rows[places[chosen] - first], num_output[chosen], seeds)
            first += len(job.order)
        return found

    return PlannedRows(
        num_prompt=joined([job.order.num_tokens[job.run.positions] for job in plan.jobs]),
        num_new=joined([job.num_new for job in plan.jobs]),
        num_output=joined([job.lengths.drawn[job.run.positions] for job in plan.jobs]),
        num_to_compute=plan.num_to_compute,
        rows=rows,
    )


def _sim_rows(asked: JobToPlan, rows: Ints, num_output: Ints, seeds: Ints) -> list[SimRow]:
    columns = asked.spool.table.select(["max_tokens", "priority", "ignore_eos"]).take(pa.array(rows)).to_pylist()
    prompts = asked.token_ids(rows)
    return [
        SimRow(
            token_ids=prompt,
            max_tokens=of_row["max_tokens"],
            num_output_tokens=max(1, length),
            answer_seed=seed,
            priority=of_row["priority"],
            ignore_eos=of_row["ignore_eos"],
            group=asked.group,
        )
        for of_row, prompt, length, seed in zip(columns, prompts, num_output.tolist(), seeds.tolist(), strict=True)
    ]
