from itertools import accumulate

import pytest
import torch

from batchrunner.kernels.gpu.paged_chunks import Chunks, paged_chunks, paged_chunks_reference, specializations
from tests.kernels.gpu.attention import TOLERANCE, Heads, PagedCase, attend_directly

ALL_OPTIONS = ("window", "softcap", "sinks", "head_scales")


def segment_starts(num_new):
    """Segments one after another, with a row of no segment before each."""
    return [sum(num_new[:i]) + i + 1 for i in range(len(num_new))]


def attend_both(case, num_new, options):
    query = case.query(sum(num_new) + len(num_new) + 1)
    out, expected = case.empty_out(len(query)), case.empty_out(len(query))
    starts = torch.tensor(segment_starts(num_new), dtype=torch.int32)
    begins = torch.tensor([0, *accumulate(num_new)], dtype=torch.int32)
    chunks = Chunks(starts, begins, case.context_lens, case.block_tables, sum(num_new))
    arguments = (query, case.k_cache, case.v_cache, chunks, options)
    paged_chunks(*arguments, out)
    paged_chunks_reference(*arguments, expected)
    return query, out, expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("names", [(), ("window",), ("softcap",), ("sinks",), ("head_scales",), ALL_OPTIONS])
def test_options(names, dtype):
    """A whole prompt of two tiles, one token, and a chunk at the end of a context."""
    case = PagedCase(Heads(2, 3, 80, 80), 7, [37, 20, 75], dtype)
    _, out, expected = attend_both(case, [37, 1, 11], case.options(*names))
    torch.testing.assert_close(out, expected, atol=TOLERANCE[dtype], rtol=0)


@pytest.mark.parametrize("block_size", [1, 7, 16])
@pytest.mark.parametrize(
    "heads",
    [Heads(2, 1, 64, 64), Heads(1, 4, 80, 16), Heads(1, 5, 16, 80)],
    ids=["mha", "narrow", "wide"],
)
def test_shapes(heads, block_size):
    case = PagedCase(heads, block_size, [3, 64, 41], torch.float32)
    _, out, expected = attend_both(case, [3, 40, 1], case.options())
    torch.testing.assert_close(out, expected, atol=TOLERANCE[torch.float32], rtol=0)


def test_tiles_of_keys_outside_the_window_are_skipped():
    """What lies before the window is NaN: a skipped tile is one that was never multiplied."""
    case = PagedCase(Heads(1, 2, 16, 16), 16, [300], torch.float32)
    case.k_cache[case.block_tables[0, :12].long()] = float("nan")
    case.v_cache[case.block_tables[0, :12].long()] = float("nan")
    _, out, _ = attend_both(case, [30], case.options("window", window=70))
    assert not out.isnan().any()


@pytest.mark.parametrize("names", [(), ALL_OPTIONS])
def test_twin_is_attention(names):
    case = PagedCase(Heads(2, 3, 16, 20), 7, [30, 9], torch.float32)
    options = case.options(*names)
    num_new = [6, 9]
    query, _, expected = attend_both(case, num_new, options)
    for request, start in enumerate(segment_starts(num_new)):
        first = int(case.context_lens[request]) - num_new[request]
        for i in range(num_new[request]):
            direct, _ = attend_directly(case, query[start + i], request, first + i, options)
            torch.testing.assert_close(expected[start + i].double(), direct, atol=1e-5, rtol=0)


def test_rows_of_no_segment_are_left_alone():
    case = PagedCase(Heads(1, 3, 16, 16), 7, [25, 30], torch.float32)
    _, out, _ = attend_both(case, [25, 2], case.options())
    untouched = (out == 7).all(dim=-1).all(dim=-1).nonzero().flatten().tolist()
    assert untouched == [0, 26, 29]


def test_specializations_name_every_parameter():
    for item in specializations():
        assert list(item.signature) == list(item.kernel.arg_names)
        assert set(item.constants) == {name for name, kind in item.signature.items() if "constexpr" in (kind, *kind)}
