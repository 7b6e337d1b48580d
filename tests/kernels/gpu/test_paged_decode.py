import pytest
import torch

from batchrunner.kernels.gpu.paged_decode import (
    SPLIT_SIZE,
    Decodes,
    paged_decode,
    paged_decode_reference,
    specializations,
)
from tests.kernels.gpu.attention import TOLERANCE, Heads, PagedCase, attend_directly

ALL_OPTIONS = ("window", "softcap", "sinks", "head_scales")


def decode_both(case, options):
    """The kernel's and the twin's result; request i has row 2i + 1, the other rows stay as they are."""
    num_requests = len(case.context_lens)
    num_rows = 2 * num_requests + 1
    query = case.query(num_rows)
    rows = torch.arange(num_requests, dtype=torch.int32) * 2 + 1
    kv_begins = torch.zeros(num_requests, dtype=torch.int32)
    out, expected = case.empty_out(num_rows), case.empty_out(num_rows)
    decodes = Decodes(rows, case.block_tables, kv_begins, case.context_lens)
    arguments = (query, case.k_cache, case.v_cache, decodes, options)
    paged_decode(*arguments, None, out)
    paged_decode_reference(*arguments, None, expected)
    return query, out, expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("names", [(), ("window",), ("softcap",), ("sinks",), ("head_scales",), ALL_OPTIONS])
def test_options(names, dtype):
    case = PagedCase(Heads(2, 3, 80, 80), 7, [1, 33, 70], dtype)
    _, out, expected = decode_both(case, case.options(*names))
    torch.testing.assert_close(out, expected, atol=TOLERANCE[dtype], rtol=0)


@pytest.mark.parametrize("block_size", [1, 7, 16])
@pytest.mark.parametrize(
    "heads", [Heads(2, 1, 64, 64), Heads(1, 4, 80, 16), Heads(1, 20, 16, 80)], ids=["mha", "narrow", "two tiles"]
)
def test_shapes(heads, block_size):
    case = PagedCase(heads, block_size, [5, 64, 41], torch.float32)
    _, out, expected = decode_both(case, case.options())
    torch.testing.assert_close(out, expected, atol=TOLERANCE[torch.float32], rtol=0)


@pytest.mark.parametrize("names", [(), ("window", "sinks")])
def test_splits(names):
    """Shorter than a split, exactly one, one key more, several; a window that begins in the second of three."""
    lengths = [SPLIT_SIZE - 1, SPLIT_SIZE, SPLIT_SIZE + 1, 2 * SPLIT_SIZE + 100]
    case = PagedCase(Heads(1, 2, 16, 16), 16, lengths, torch.float32)
    _, out, expected = decode_both(case, case.options(*names, window=SPLIT_SIZE + 50))
    torch.testing.assert_close(out, expected, atol=TOLERANCE[torch.float32], rtol=0)


@pytest.mark.parametrize("names", [(), ALL_OPTIONS])
def test_twin_is_attention(names):
    case = PagedCase(Heads(2, 3, 16, 20), 7, [1, 40], torch.float32)
    options = case.options(*names)
    query, _, expected = decode_both(case, options)
    for request, length in enumerate(case.context_lens.tolist()):
        direct, _ = attend_directly(case, query[2 * request + 1], request, length - 1, options)
        torch.testing.assert_close(expected[2 * request + 1].double(), direct, atol=1e-5, rtol=0)


def test_result_does_not_depend_on_neighbours():
    case = PagedCase(Heads(1, 2, 16, 16), 16, [50, SPLIT_SIZE + 20], torch.float32)
    query, together, _ = decode_both(case, case.options())
    alone = case.empty_out(len(query))
    first = slice(0, 1)
    tables, lengths = case.block_tables[first, :4].contiguous(), case.context_lens[first]
    rows, kv_begins = torch.ones(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    decodes = Decodes(rows, tables, kv_begins, lengths)
    paged_decode(query, case.k_cache, case.v_cache, decodes, case.options(), None, alone)
    assert torch.equal(alone[1], together[1])
    assert (alone[[0, 2, 3, 4]] == 7).all()


def test_specializations_name_every_parameter():
    for item in specializations():
        assert list(item.signature) == list(item.kernel.arg_names)
        assert set(item.constants) == {name for name, kind in item.signature.items() if "constexpr" in (kind, *kind)}
