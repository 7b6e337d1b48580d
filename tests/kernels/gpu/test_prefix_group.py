import pytest
import torch

from batchrunner.kernels.gpu import merge_states as merging
from batchrunner.kernels.gpu.merge_states import (
    SPLIT_SIZE,
    PartialAttention,
    merge_splits,
    merge_splits_reference,
    merge_states,
    merge_states_reference,
)
from batchrunner.kernels.gpu.paged_decode import Decodes, paged_decode
from batchrunner.kernels.gpu.prefix_group import (
    PrefixGroups,
    attend_prefix_groups,
    attend_prefix_groups_reference,
    specializations,
)
from tests.kernels.gpu.attention import TOLERANCE, Heads, PagedCase, attend_directly

ALL_OPTIONS = ("window", "softcap", "sinks", "head_scales")


def ints(values):
    return torch.tensor(values, dtype=torch.int32)


def groups_of(case, groups):
    """PrefixGroups from (member rows, request whose blocks they share, first block, end block)."""
    members = [row for rows, *_ in groups for row in rows]
    begins = [sum(len(rows) for rows, *_ in groups[:i]) for i in range(len(groups) + 1)]
    width = max(end - first for *_, first, end in groups)
    tables = torch.zeros(len(groups), width, dtype=torch.int32)
    for i, (_, request, first, end) in enumerate(groups):
        tables[i, : end - first] = case.block_tables[request, first:end]
    size = case.block_size
    kv_begins, kv_ends = ([group[i] * size for group in groups] for i in (2, 3))
    return PrefixGroups(ints(members), ints(begins), tables, ints(kv_begins), ints(kv_ends))


def assert_states_close(state, expected, tolerance):
    torch.testing.assert_close(state.out, expected.out, atol=tolerance, rtol=0)
    torch.testing.assert_close(state.lse, expected.lse, atol=tolerance, rtol=0)


def two_levels(case):
    """Rows 0..7 decode requests 0..7: all but row 7 share block 0, rows 1, 2 and 5 block 1, rows 3 and 4 blocks 1, 2.

    The cache is made so: a request's own block table names the shared blocks.
    """
    tables = case.block_tables
    tables[:7, 0] = tables[0, 0]
    tables[[1, 2, 5], 1] = tables[1, 1]
    tables[[3, 4], 1:3] = tables[3, 1:3]
    levels = [
        groups_of(case, [((0, 1, 2, 3, 4, 5, 6), 0, 0, 1)]),
        groups_of(case, [((5, 1, 2), 1, 1, 2), ((4, 3), 3, 1, 3)]),
    ]
    own_begins = [1, 2, 2, 3, 3, 2, 1, 0]
    return levels, own_begins


def two_level_case(heads, block_size, dtype):
    lengths = [3 * block_size + i for i in range(1, 9)]
    case = PagedCase(heads, block_size, lengths, dtype)
    return case, case.query(len(lengths)), case.context_lens - 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("names", [(), ("window",), ("softcap",), ("head_scales",), ALL_OPTIONS])
def test_options(names, dtype):
    case, query, positions = two_level_case(Heads(2, 3, 80, 80), 16, dtype)
    levels, _ = two_levels(case)
    # The window ends within the shared prefix, at another key for every row.
    arguments = (query, case.k_cache, case.v_cache, levels, positions, case.options(*names, window=44))
    assert_states_close(attend_prefix_groups(*arguments), attend_prefix_groups_reference(*arguments), TOLERANCE[dtype])


@pytest.mark.parametrize("block_size", [1, 7, 16])
@pytest.mark.parametrize(
    "heads",
    [Heads(2, 1, 64, 64), Heads(1, 4, 80, 16), Heads(1, 20, 16, 80)],
    ids=["mha", "narrow", "many"],
)
def test_shapes(heads, block_size):
    """Twenty heads a KV head make tiles that end within a member, and groups of several tiles."""
    case, query, positions = two_level_case(heads, block_size, torch.float32)
    levels, _ = two_levels(case)
    arguments = (query, case.k_cache, case.v_cache, levels, positions, case.options())
    state = attend_prefix_groups(*arguments)
    assert_states_close(state, attend_prefix_groups_reference(*arguments), TOLERANCE[torch.float32])
    assert (state.lse[7] == float("-inf")).all()
    assert (state.out[7] == 0).all()


@pytest.mark.parametrize("names", [(), ("window", "softcap", "head_scales")])
def test_twin_is_attention(names):
    case, query, positions = two_level_case(Heads(2, 3, 16, 20), 7, torch.float32)
    levels, own_begins = two_levels(case)
    options = case.options(*names, window=16)
    state = attend_prefix_groups_reference(query, case.k_cache, case.v_cache, levels, positions, options)
    for row, own_begin in enumerate(own_begins):
        keys = range(own_begin * case.block_size)
        out, lse = attend_directly(case, query[row], row, int(positions[row]), options, keys)
        torch.testing.assert_close(state.out[row].double(), out, atol=1e-5, rtol=0)
        torch.testing.assert_close(state.lse[row].double(), lse, atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("names", [(), ALL_OPTIONS])
def test_groups_then_decode_is_decode(names, dtype):
    case, query, positions = two_level_case(Heads(2, 3, 64, 80), 7, dtype)
    levels, own_begins = two_levels(case)
    options = case.options(*names, window=16)
    prefix = attend_prefix_groups(query, case.k_cache, case.v_cache, levels, positions, options)
    rows = torch.arange(len(query), dtype=torch.int32)
    own_tables = torch.zeros_like(case.block_tables)
    for row, begin in enumerate(own_begins):
        table = case.block_tables[row, begin:]
        own_tables[row, : len(table)] = table
    grouped, plain = case.empty_out(len(query)), case.empty_out(len(query))
    caches = (query, case.k_cache, case.v_cache)
    own = Decodes(rows, own_tables, ints(own_begins) * case.block_size, case.context_lens)
    whole = Decodes(rows, case.block_tables, torch.zeros_like(rows), case.context_lens)
    paged_decode(*caches, own, options, prefix, grouped)
    paged_decode(*caches, whole, options, None, plain)
    torch.testing.assert_close(grouped, plain, atol=TOLERANCE[dtype], rtol=0)


def random_state(*shape):
    state = PartialAttention(torch.randn(shape), 3 * torch.randn(shape[:-1]))
    without_keys = torch.rand(shape[:-1]) < 0.3
    state.out[without_keys] = 0
    state.lse[without_keys] = float("-inf")
    return state


@pytest.mark.parametrize("dim", [16, 80])
def test_merge_states(dim):
    torch.manual_seed(0)
    a, b = random_state(11, 3, dim), random_state(11, 3, dim)
    assert_states_close(merge_states(a, b), merge_states_reference(a, b), TOLERANCE[torch.float32])


def test_merge_states_is_attention_over_both():
    case = PagedCase(Heads(2, 2, 16, 20), 7, [30], torch.float32)
    query, options = case.query(1)[0], case.options()
    parts = [attend_directly(case, query, 0, 29, options, keys) for keys in (range(13), range(13, 30))]
    merged = merge_states_reference(*(PartialAttention(out, lse) for out, lse in parts))
    out, lse = attend_directly(case, query, 0, 29, options)
    assert_states_close(merged, PartialAttention(out, lse), 1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("has_options", [False, True])
def test_merge_splits(has_options, dtype):
    """More splits than one tile takes; what lies beyond a request's splits is NaN."""
    torch.manual_seed(0)
    num_keys = ints([1, 3 * SPLIT_SIZE, 19 * SPLIT_SIZE - 5])
    splits = PartialAttention(torch.randn(3, 2, 20, 80), torch.randn(3, 2, 20))
    splits.out[0, :, 1:] = splits.lse[0, :, 1:] = float("nan")
    splits.lse[2, :, :4] = float("-inf")
    prefix, sinks = (random_state(7, 2, 80), torch.randn(2).to(dtype)) if has_options else (None, None)
    out, expected = (torch.full((7, 2, 80), 7.0, dtype=dtype) for _ in range(2))
    arguments = (splits.out, splits.lse, ints([6, 1, 4]), num_keys, prefix, sinks)
    merge_splits(*arguments, out)
    merge_splits_reference(*arguments, expected)
    torch.testing.assert_close(out, expected, atol=TOLERANCE[dtype], rtol=0)


def test_specializations_name_every_parameter():
    for item in specializations() + merging.specializations():
        assert list(item.signature) == list(item.kernel.arg_names)
        assert set(item.constants) == {name for name, kind in item.signature.items() if "constexpr" in (kind, *kind)}
