"""Tiles of packed rows: every row is in one tile, and no tile is beyond those that are launched."""

from itertools import accumulate

import pytest
import torch
import triton
import triton.language as tl

from batchrunner.kernels.gpu.packed_rows import locate_tile, num_tiles


@triton.jit
def locate_all(begins, found, num_segments, group_size: tl.constexpr, row_tile: tl.constexpr):
    tile = tl.program_id(0)
    segment, begin, num_rows, row_begin = locate_tile(tile, begins, num_segments, group_size, row_tile)
    tl.store(found + tile * 4, segment)
    tl.store(found + tile * 4 + 1, begin)
    tl.store(found + tile * 4 + 2, num_rows)
    tl.store(found + tile * 4 + 3, row_begin)


@pytest.mark.parametrize("num_tokens", [[1], [8], [9], [3, 2], [1, 1, 1, 1, 1], [16, 1, 40, 8, 7]])
@pytest.mark.parametrize("group_size", [1, 3, 8])
def test_every_row_is_in_one_tile(num_tokens: list[int], group_size: int) -> None:
    row_tile = 8
    begins = [0, *accumulate(num_tokens)]
    found = torch.full((num_tiles(begins[-1], len(num_tokens), group_size, row_tile), 4), -1, dtype=torch.int32)
    locate_all[(len(found),)](
        torch.tensor(begins, dtype=torch.int32), found, len(num_tokens), group_size=group_size, row_tile=row_tile
    )
    with_rows = [tuple(tile) for tile in found.tolist() if tile[3] < tile[2]]
    assert with_rows == [
        (segment, begins[segment], count * group_size, row_begin)
        for segment, count in enumerate(num_tokens)
        for row_begin in range(0, count * group_size, row_tile)
    ]
