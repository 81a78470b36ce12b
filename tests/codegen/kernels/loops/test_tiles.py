"""Tiles, panels, strides and shares cover every element once, in every layout."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.layouts import image_layout
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.loops.access import Access, ImageStrides, image_strides, row_major, vector_stride
from sartor.codegen.kernels.loops.panels import Panel, PanelGrid
from sartor.codegen.kernels.loops.partition import (
    largest_range,
    many_workgroups,
    many_workgroups_of_two,
    workgroup_range,
)
from sartor.codegen.kernels.loops.tiles import Axis, Segment, TileRun, before_another, tile_runs
from sartor.codegen.mlir.iree_compiler import ir, shared_context


@st.composite
def axes(draw: st.DrawFn) -> Axis:
    """Windows with any stride, dilation and padding, kernels larger than their image among them."""
    image, kernel = draw(st.integers(1, 12)), draw(st.integers(1, 9))
    stride, dilation = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    before, after = draw(st.integers(0, 12)), draw(st.integers(0, 12))
    free = image + before + after - dilation * (kernel - 1) - 1
    output = max(1, free // stride + 1)
    return Axis(image, output, kernel, stride, dilation, before)


def touched(axis: Axis, column: int) -> set[int]:
    """Taps of a column's window that read a pixel of the image."""
    pixels = range(axis.padding, axis.padding + axis.input)
    return {tap for tap in range(axis.kernel) if column * axis.stride + tap * axis.dilation in pixels}


@given(axes(), st.integers(1, 40))
def test_tiles_cover_every_column_once(axis: Axis, width: int) -> None:
    runs = tile_runs(axis, width)
    columns = [
        column
        for run in runs
        for start in range(run.start, run.end, run.width)
        for column in range(start, start + run.width)
    ]
    assert columns == list(range(axis.output))
    assert all(0 < run.width <= width for run in runs)
    assert sum(run.width != width for run in runs) <= 1


@given(axes(), st.integers(1, 40))
def test_segments_are_the_taps_on_the_image(axis: Axis, width: int) -> None:
    for run in tile_runs(axis, width):
        for start in range(run.start, run.end, run.width):
            found: dict[int, set[int]] = {pixel: set() for pixel in range(run.width)}
            for segment in run.segments:
                for pixel in segment.pixels:
                    found[pixel] |= set(range(segment.first, segment.end))
            assert found == {pixel: touched(axis, start + pixel) for pixel in range(run.width)}


@given(axes(), st.integers(1, 40))
def test_segments_are_in_order_and_never_empty(axis: Axis, width: int) -> None:
    for run in tile_runs(axis, width):
        ends = [0]
        for segment in run.segments:
            assert ends[-1] <= segment.first < segment.end <= axis.kernel
            assert list(segment.pixels) == sorted(set(segment.pixels))
            assert segment.pixels
            ends.append(segment.end)


@given(axes())
def test_an_axis_is_padded_where_a_tap_lies_outside(axis: Axis) -> None:
    taps = [touched(axis, column) for column in range(axis.output)]
    assert axis.is_padded == any(len(tap) < axis.kernel for tap in taps)


@pytest.mark.parametrize(
    ("axis", "width", "expected"),
    [
        (Axis(56, 56, 3, 1, 1, 1), 14, [(0, 14, 1), (14, 14, 2), (42, 14, 1)]),
        (Axis(7, 7, 1, 1, 1, 0), 3, [(0, 3, 2), (6, 1, 1)]),
        (Axis(3, 41, 3, 1, 1, 20), 14, [(0, 14, 1), (14, 14, 1), (28, 13, 1)]),
    ],
)
def test_equal_tiles_share_their_code(axis: Axis, width: int, expected: list[tuple[int, int, int]]) -> None:
    assert [(run.start, run.width, run.count) for run in tile_runs(axis, width)] == expected


def test_a_tile_in_the_padding_touches_nothing() -> None:
    assert [bool(run.segments) for run in tile_runs(Axis(3, 41, 3, 1, 1, 20), 14)] == [False, True, False]


@given(axes(), st.integers(1, 40))
def test_a_pixel_of_few_channels_is_read_with_one_beside_it(axis: Axis, width: int) -> None:
    for run in tile_runs(axis, width):
        for segment in run.segments:
            for tap in range(segment.first, segment.end):
                _check_neighbours(axis, run, segment, tap)


def _check_neighbours(axis: Axis, run: TileRun, segment: Segment, tap: int) -> None:
    read = {
        pixel: {axis.pixel(start + pixel, tap) for start in range(run.start, run.end, run.width)}
        for pixel in segment.pixels
    }
    try:
        followed = before_another(axis, run, segment, tap)
    except ValueError:
        assert any({0, axis.input - 1} <= pixels for pixels in read.values())
        return
    assert all(axis.input - 1 not in read[each] for each in followed)
    assert all(0 not in read[each] for each in set(segment.pixels) - set(followed))


@pytest.mark.parametrize("channels", [1, 15, 16, 17, 32, 48, 49, 95, 96, 97])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_panels_hold_every_channel_once(channels: int, size: int) -> None:
    grid = PanelGrid(channels, 16, size)
    panels = [grid.full_panel(index) for index in range(grid.full)]
    if grid.full < grid.panels:
        panels.append(grid.last_panel(grid.full))
    assert [panel.index for panel in panels] == list(range(grid.panels))
    held = [panel.count(vector, 16) for panel in panels for vector in range(panel.vectors)]
    assert len(held) == grid.vectors
    assert sum(held) == channels
    assert set(held[:-1]) <= {16}


def test_a_last_panel_that_is_full_is_like_the_others() -> None:
    grid = PanelGrid(96, 16, 3)
    assert (grid.width, grid.full) == (48, grid.panels)
    assert grid.last_panel(1) == grid.full_panel(1) == Panel(1, 3, 16)


IMAGE = TensorType((2, 32, 3, 5), "f32")


@pytest.mark.parametrize(
    ("channels", "layout"), [(32, "nhwc"), (5, "nhwc"), (32, "nchw16c"), (32, "nchw8c"), (32, "nchw4c"), (1, "nchw")]
)
def test_strides_find_every_pixel(channels: int, layout: str) -> None:
    image = TensorType((2, channels, 3, 5), "f32")
    numbers = np.arange(image.elements, dtype=np.float32).reshape(image.shape)
    memory = image_layout(layout).packing(image).apply(numbers).ravel()
    strides = image_strides(image, layout)
    for n, c, h, w in np.ndindex(image.shape):
        run, inside = divmod(c, strides.block)
        offset = n * strides.batch + run * strides.blocks + h * strides.row + w * strides.column + inside
        assert memory[offset] == numbers[n, c, h, w]


def test_channels_of_a_vector_must_be_adjacent() -> None:
    with pytest.raises(ValueError, match="channels are not adjacent in nchw"):
        image_strides(IMAGE, "nchw")
    with pytest.raises(ValueError, match="blocks of 8 channels do not match vectors of 16"):
        vector_stride(image_strides(IMAGE, "nchw8c"), 16)


def test_vectors_follow_each_other_at_the_distance_of_blocks() -> None:
    assert vector_stride(image_strides(IMAGE, "nhwc"), 8) == 8
    assert vector_stride(image_strides(IMAGE, "nchw8c"), 8) == 8 * 3 * 5
    assert vector_stride(ImageStrides(480, 5, 1, 1, 1), 8) == 8


def test_joined_rows_are_cut_anew() -> None:
    access = Access(memory=0, batch=480, row=160, column=32, vector=16)
    assert access.flattened(5).split(3) == Access(0, 480, 96, 32, 16)
    by_channel = Access(0, 32, 0, 0, 16)
    assert by_channel.flattened(5).split(3) == by_channel


@pytest.mark.parametrize("row", [0, 1])
def test_rows_that_do_not_follow_each_other_cannot_be_joined(row: int) -> None:
    with pytest.raises(ValueError, match="address rows and columns separately"):
        Access(memory=0, batch=0, row=row, column=1, vector=None).flattened(5)


def test_row_major_strides() -> None:
    assert row_major((2, 3, 5)) == (15, 5, 1)
    assert row_major(()) == ()


extents = st.integers(1, 3000)


def cut(extent: int, shares: int) -> list[tuple[int, int]]:
    """All shares as numbers: known indices fold."""
    with shared_context() as context, ir.Location.unknown(context):
        asm = Assembler(ir.Module.create().body, 16)
        found = [workgroup_range(asm, extent, shares, index) for index in range(shares)]
    return [(first, end) for first, end in found if isinstance(first, int) and isinstance(end, int)]


@settings(deadline=None)
@given(extents, st.integers(1, 60))
def test_shares_cover_the_extent_once(extent: int, shares: int) -> None:
    found = cut(extent, shares)
    assert len(found) == shares
    assert found[0][0] == 0
    assert found[-1][1] == extent
    assert all(one[1] == other[0] for one, other in itertools.pairwise(found))
    assert all(first <= end for first, end in found)


@settings(deadline=None)
@given(extents, st.integers(1, 60))
def test_the_largest_share_is_known(extent: int, shares: int) -> None:
    assert largest_range(extent, shares) == max(end - first for first, end in cut(extent, shares))


def test_the_first_share_may_not_be_the_largest() -> None:
    assert [end - first for first, end in cut(7, 7)] == [1, 2, 1, 1, 1, 0, 1]
    assert largest_range(7, 7) == 2


@settings(deadline=None)
@given(extents, st.integers(1, 60))
def test_shares_shrink_but_for_rounding(extent: int, shares: int) -> None:
    sizes = [end - first for first, end in cut(extent, shares)]
    assert all(one >= other - 1 for one, other in itertools.pairwise(sizes))


@settings(deadline=None)
@given(extents, st.integers(2, 16))
def test_the_last_share_is_small(extent: int, threads: int) -> None:
    shares = many_workgroups(extent, threads)
    first, end = cut(extent, shares)[-1]
    assert end - first <= max(1, extent / (10 * threads))


@settings(deadline=None)
@given(extents, st.integers(1, 64))
def test_workers_take_one_share_at_a_time(extent: int, threads: int) -> None:
    """IREE's take eight at a time where there are eight or more for each."""
    assert 1 <= many_workgroups(extent, threads) < 8 * max(threads, 2)


@settings(deadline=None)
@given(extents, extents, st.integers(1, 64))
def test_a_second_extent_makes_up_for_a_small_first_one(first: int, second: int, threads: int) -> None:
    one, other = many_workgroups_of_two(first, second, threads)
    assert 1 <= one <= first
    assert 1 <= other <= second
    assert one * other < 8 * max(threads, 2)
    assert other == second or 2 * one * other >= many_workgroups(first * second, threads)
