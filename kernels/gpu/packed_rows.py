"""Tiles of packed rows: the query heads that share a KV head, of all tokens of a segment, side by side.

A tile holds rows of one segment only. They are numbered so that a segment's first tile is known from where its tokens
begin: begins[s] · group_size // ROW_TILE + s. The last tile of a segment may be empty. With group_size = 3 and
ROW_TILE = 8, tokens a b c of segment 0 and d e of segment 1:

    a a a b b b c c | c . . . . . . . | d d d e e e . .
"""

# ruff: noqa: N803 (constants in capitals, as Triton has them)

import triton
import triton.language as tl


def num_tiles(num_tokens: int, num_segments: int, group_size: int, row_tile: int) -> int:
    """Tiles of num_segments segments that have num_tokens tokens together."""
    return num_tokens * group_size // row_tile + num_segments


@triton.jit
def locate_tile(tile, begins, num_segments, GROUP_SIZE: tl.constexpr, ROW_TILE: tl.constexpr):
    """A tile's segment, that segment's first token and number of packed rows, and the first of them in the tile.

    begins [num_segments + 1] int32: where each segment's tokens begin, and where the last one's end. The tile is empty
    where its first row is not below the number of rows.
    """
    # The segment of a tile is the last one whose first tile isn't after it.
    segment = tl.full([], 0, tl.int32)  # not the constant 0, which it would stay where there is one segment
    last = segment + num_segments - 1
    while segment < last:
        middle = (segment + last + 1) // 2
        is_after = tl.load(begins + middle) * GROUP_SIZE // ROW_TILE + middle > tile
        segment = tl.where(is_after, segment, middle)
        last = tl.where(is_after, middle - 1, last)
    begin = tl.load(begins + segment)
    num_rows = (tl.load(begins + segment + 1) - begin) * GROUP_SIZE
    return segment, begin, num_rows, (tile - begin * GROUP_SIZE // ROW_TILE - segment) * ROW_TILE
