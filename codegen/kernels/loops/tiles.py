"""How a row of the result is cut into register tiles, and which of a tile's pixels a kernel column touches.

The code leaves out pixels that a kernel column would read outside the image, so padding costs nothing and no padded
copy is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from sartor.codegen.ir.rejection import RejectionError


@dataclass(frozen=True)
class Axis:
    """A sliding window along one dimension.

    Attributes:
        input: extent of the image.
        output: extent of the result.
        kernel: taps of the window.
        stride: between neighbouring results.
        dilation: between neighbouring taps.
        padding: pixels of padding before the image.
    """

    input: int
    output: int
    kernel: int
    stride: int
    dilation: int
    padding: int

    def hits(self, position: int, tap: int) -> bool:
        """Whether a tap of the window at a position of the result lies on the image."""
        return 0 <= self.pixel(position, tap) < self.input

    def pixel(self, position: int, tap: int) -> int:
        """The pixel that a tap of the window at a position of the result reads."""
        return position * self.stride + tap * self.dilation - self.padding

    @property
    def is_padded(self) -> bool:
        """Whether some tap of some position lies outside the image."""
        return not (self.hits(0, 0) and self.hits(self.output - 1, self.kernel - 1))


@dataclass(frozen=True)
class Segment:
    """Neighbouring taps that touch the same pixels of a tile."""

    first: int
    end: int
    pixels: tuple[int, ...]


@dataclass(frozen=True)
class TileRun:
    """``count`` tiles of ``width`` columns from ``start`` on, whose pixels the same taps touch."""

    start: int
    width: int
    count: int
    segments: tuple[Segment, ...]

    @property
    def end(self) -> int:
        return self.start + self.width * self.count


def before_another(axis: Axis, run: TileRun, segment: Segment, tap: int) -> tuple[int, ...]:
    """The pixels of a tile for which a tap reads an image pixel that another follows in its row, in all tiles of a run.

    Raises:
        RejectionError: if for another pixel, in some tile, the tap reads the first of a row, so that none precedes it
            either.
    """
    pixels = tuple(pixel for pixel in segment.pixels if axis.pixel(run.end - run.width + pixel, tap) + 1 < axis.input)
    if any(axis.pixel(run.start + pixel, tap) == 0 for pixel in set(segment.pixels) - set(pixels)):
        raise RejectionError("a pixel of the tile has no neighbour in its row")
    return pixels


# Each panel of a kernel asks for the same runs, and each tile of a long row counts.
@lru_cache(maxsize=64)
def tile_runs(axis: Axis, width: int) -> tuple[TileRun, ...]:
    """Runs of tiles of ``width`` columns that cover a row; the last tile may be narrower."""
    starts = range(0, axis.output, width)
    tiles = [(start, min(width, axis.output - start)) for start in starts]
    runs: list[TileRun] = []
    alike = groupby(tiles, key=lambda tile: (tile[1], _segments(axis, *tile)))
    for (size, segments), group in alike:
        group_of_taps = list(group)
        runs.append(TileRun(group_of_taps[0][0], size, len(group_of_taps), segments))
    return tuple(runs)


def _segments(axis: Axis, start: int, width: int) -> tuple[Segment, ...]:
    touched = [
        (tap, tuple(pixel for pixel in range(width) if axis.hits(start + pixel, tap))) for tap in range(axis.kernel)
    ]
    segments = []
    for pixels, group in groupby(touched, key=lambda touch: touch[1]):
        taps = [tap for tap, _ in group]
        if pixels:
            segments.append(Segment(taps[0], taps[-1] + 1, pixels))
    return tuple(segments)
