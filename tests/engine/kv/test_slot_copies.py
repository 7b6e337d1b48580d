"""KV that a step computes for one request and copies to others, in every layer before it is read."""

from pathlib import Path

import torch

from batchrunner import Engine, SamplingParams
from batchrunner.engine.kv.places import InnerCopy
from batchrunner.engine.kv.slot_copies import SlotCopies

CPU = torch.device("cpu")


def test_a_copy_of_a_copy_is_read_where_the_first_one_is() -> None:
    cache = torch.arange(4 * 2 * 3, dtype=torch.float32).view(4, 1, 2, 3).clone()
    expected = cache.clone()
    expected[1, :, :2] = cache[0, :, :2]
    expected[3, :, :1] = cache[0, :, :1]
    copies = SlotCopies.build([InnerCopy(0, 1, 2), InnerCopy(1, 3, 1)], 2, CPU)
    assert copies is not None
    copies.make(cache)
    assert torch.equal(cache, expected)


def test_beyond_what_was_copied_a_block_is_read_itself() -> None:
    cache = torch.arange(3 * 4, dtype=torch.float32).view(3, 1, 4, 1).clone()
    copies = SlotCopies.build([InnerCopy(0, 1, 1), InnerCopy(1, 2, 3)], 4, CPU)
    assert copies is not None
    expected = [0.0, 5.0, 6.0, 11.0]
    copies.make(cache)
    assert cache[2, 0, :, 0].tolist() == expected


def test_no_copies_are_none() -> None:
    assert SlotCopies.build([], 16, CPU) is None


def test_rows_that_share_a_part_of_a_block_in_one_step_give_the_answers_they_give_alone(tiny_llama: Path) -> None:
    prompts = [[5, 6, 7, 8, 9, *own] for own in ([], [10], [10, 11], [10, 12], [13])]
    params = SamplingParams(max_tokens=6, ignore_eos=True)
    with Engine(tiny_llama, kv_tokens=640) as engine:
        together = engine.generate(prompts, params)
        assert engine.counters.num_prompt_tokens - engine.counters.num_cached_tokens == 9
    with Engine(tiny_llama, kv_tokens=640, prefix_caching=False, max_running=1) as engine:
        alone = engine.generate(prompts, params)
    assert [item.token_ids for item in together] == [item.token_ids for item in alone]
