"""Tiles cover every column once, and name exactly the taps that lie on the image."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sartor.codegen.kernels.loops.tiles import Axis, Segment, TileRun, before_another, tile_runs


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
