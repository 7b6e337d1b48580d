"""How long will an answer be? What holds for every predictor, and what each is worth to shortest-job-first."""

import random
import subprocess
import sys
from collections.abc import Callable

import pytest

from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.predictors.history import MIN_OBSERVATIONS, History
from batchrunner.engine.scheduling.predictors.max_tokens import MaxTokens
from batchrunner.engine.scheduling.predictors.oracle import Oracle
from batchrunner.engine.scheduling.predictors.predictor import LengthPredictor, outlived
from batchrunner.engine.scheduling.predictors.signals import Signals
from batchrunner.engine.scheduling.predictors.small_model import SmallModel
from tests.engine.scheduling.predictors.predictor_requests import request

# Every predictor


EVERY: list[Callable[[float], LengthPredictor]] = [
    lambda tokens: Oracle({"r": int(tokens)}),
    lambda tokens: SmallModel(lambda requests: [int(tokens)] * len(requests)),
    lambda tokens: Signals(lambda request: f"in {round(tokens * 3 / 4)} words"),
    lambda tokens: History(lengths={"*": [int(tokens)] * MIN_OBSERVATIONS}),
]


@pytest.mark.parametrize("build", EVERY)
def test_a_prediction_lies_between_what_there_is_and_what_may_come(build: Callable[[float], LengthPredictor]) -> None:
    predictor = build(40)
    assert predictor.predict(request()) == 40
    assert predictor.predict(request(max_tokens=30)) == 30
    assert predictor.predict(request(context=120)) == 20
    assert predictor.predict(request(output=39)) == 40
    assert predictor.predict(request(output=40)) == 80, "it has not ended at 40; as long again"
    assert predictor.predict(request(output=170)) == 320
    assert predictor.predict(request(output=999)) == 1000
    assert build(0).predict(request()) == 1


def test_an_estimate_of_nothing_is_one_token_and_a_prompt_without_room_too() -> None:
    assert outlived(0.0, request()) == 1
    assert outlived(-3.0, request(output=5)) == 8
    assert outlived(50.0, request(prompt=100, context=90)) == 1
    assert MaxTokens().predict(request(prompt=100, context=90)) == 1


def test_max_tokens_are_those_of_the_parameters_and_of_the_context() -> None:
    assert MaxTokens().predict(request(max_tokens=77)) == 77
    assert MaxTokens().predict(request(max_tokens=77, context=130)) == 30


def test_the_oracle_knows_its_requests_and_no_others() -> None:
    oracle = Oracle({"a": 3, "b": 9})
    assert [oracle.predict(request(name)) for name in "ab"] == [3, 9]
    with pytest.raises(KeyError):
        oracle.predict(request("c"))


def test_predictors_need_no_torch() -> None:
    names = ["history", "max_tokens", "oracle", "predictor", "signals", "small_model", "build_predictor"]
    code = "".join(f"import batchrunner.engine.scheduling.predictors.{name}\n" for name in names)
    code += "import sys; assert not {'torch', 'transformers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# What it is worth


def made_up_mix(seed: int) -> tuple[list[Request], dict[str, int], dict[str, str]]:
    """Three jobs in one queue, their rows mixed: labels, summaries (longer for longer texts) and essays."""
    rng = random.Random(seed)
    requests, lengths, texts = [], dict[str, int](), dict[str, str]()
    for number in range(300):
        name, group = str(number), rng.choice(["labels", "summaries", "essays"])
        prompt = rng.randint(50, 2000)
        if group == "labels":
            length, text = rng.uniform(1, 8), "Is the review positive? Answer yes or no."
        elif group == "summaries":
            length, text = prompt * rng.lognormvariate(-2, 0.4), "Summarize the text."
        else:
            length, text = rng.lognormvariate(6, 0.5), "Write an essay about the text."
        requests.append(request(name, prompt=prompt, group=group))
        lengths[name], texts[name] = min(1000, max(1, round(length))), text
    return requests, lengths, texts


def mean_wait(predictor: LengthPredictor, waiting: list[Request], lengths: dict[str, int]) -> float:
    """One server, all are there at the start; the shortest predicted is next, and its end is observed."""
    waiting, clock, waited = list(waiting), 0, 0
    predictor.prepare(waiting)
    num_requests = len(waiting)
    while waiting:
        shortest = min(waiting, key=predictor.predict)
        waiting.remove(shortest)
        waited += clock
        clock += lengths[shortest.request_id]
        shortest.token_ids += [7] * lengths[shortest.request_id]
        shortest.finish_reason = "stop"
        predictor.observe(shortest)
    return waited / num_requests


@pytest.mark.parametrize("seed", range(3))
def test_shortest_job_first_waits_less_with_each_predictor_than_in_the_order_of_arrival(seed: int) -> None:
    def wait(build: Callable[[dict[str, int], dict[str, str]], LengthPredictor]) -> float:
        requests, lengths, texts = made_up_mix(seed)
        return mean_wait(build(lengths, texts), requests, lengths)

    arrival = wait(lambda lengths, texts: MaxTokens())  # all alike: min() keeps the order
    oracle = wait(lambda lengths, texts: Oracle(lengths))
    history = wait(lambda lengths, texts: History())
    signals = wait(lambda lengths, texts: Signals(lambda item: texts[item.request_id]))
    small = wait(lambda lengths, texts: SmallModel(lambda items: [lengths[item.request_id] // 2 for item in items]))

    assert oracle <= small < 0.7 * arrival
    assert oracle < history < 0.7 * arrival
    assert oracle < signals < 0.7 * arrival
