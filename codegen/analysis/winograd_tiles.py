"""Which convolutions Winograd's method computes, and which tiles of the result may be worth it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from sartor.codegen.analysis.convolution import Convolution, convolution_of
from sartor.codegen.ir.layer import LayerKind, Task
from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.ir.winograd import MOST_POINTS

_FEWEST_CHANNELS = 16

PRODUCTS_PER_LOAD = 30.0
"""Multiply-adds that take as long as reading a number of four bytes from memory. A direct convolution reads its filter
once. Winograd's method reads a larger filter, and writes its tiles and reads them back."""
_WORTH_TRYING = 0.9


@dataclass(frozen=True)
class OutputTile:
    """Pixels of the result that are computed together, m along H and W."""

    height: int
    width: int

    def points(self, convolution: Convolution) -> int:
        """Products per tile and pair of channels: n along H times n along W."""
        height, width = convolution.filter.shape[2:]
        return (self.height + height - 1) * (self.width + width - 1)

    def count(self, convolution: Convolution) -> int:
        """Tiles that cover the result."""
        batch, _, height, width = convolution.result.shape
        return batch * -(-height // self.height) * -(-width // self.width)


def applicable(task: Task) -> Convolution | Rejected:
    """The convolution at the root of a layer; Rejected with the reason if Winograd's method does not compute it."""
    convolution = convolution_of(task) if task.kind is LayerKind.CONVOLUTION else None
    if convolution is None:
        return Rejected("not a two-dimensional convolution without groups")
    if convolution.strides != (1, 1) or convolution.dilations != (1, 1):
        return Rejected("not of stride 1 without dilation")
    if not 1 < max(convolution.filter.shape[2:]) < MOST_POINTS:
        return Rejected(f"not a filter of 2 to {MOST_POINTS - 1} taps a side")
    if not all(tensor.is_f32 for tensor in (convolution.image, convolution.filter, convolution.result)):
        return Rejected("its element types are not all f32")
    if min(convolution.filter.shape[:2]) < _FEWEST_CHANNELS:
        return Rejected("too few channels for matrix products")
    return convolution


def promising_tiles(
    convolution: Convolution, most_points: int = MOST_POINTS, per_load: float = PRODUCTS_PER_LOAD
) -> list[OutputTile] | Rejected:
    """Output tiles worth trying, best guess first; Rejected with the reason if there are none.

    Args:
        convolution: the layer's.
        most_points: pixels of the image along a side of a tile, at most.
        per_load: multiply-adds that take as long as reading a number from memory.
    """
    costs = {tile: _cost(convolution, tile, per_load) for tile in _tiles(convolution, most_points)}
    if not costs:
        return Rejected(f"tiles of {most_points} pixels a side are too small for its filters")
    direct = _direct_cost(convolution, per_load)
    good = sorted((tile for tile, cost in costs.items() if cost < _WORTH_TRYING * direct), key=costs.__getitem__)
    return good or Rejected("too few pixels for so many channels: larger filters would cost more than they save")


def _tiles(convolution: Convolution, most_points: int) -> Iterator[OutputTile]:
    height, width = (
        range(2, most_points - kernel + 2) if kernel > 1 else range(1, 2) for kernel in convolution.filter.shape[2:]
    )
    for rows, columns in product(height, width):
        if rows == columns or 1 in (rows, columns):
            yield OutputTile(rows, columns)


def _direct_cost(convolution: Convolution, per_load: float) -> float:
    """The cost of direct convolution, in multiply-adds."""
    weights = convolution.filter.elements
    batch, _, height, width = convolution.result.shape
    return max(weights * batch * height * width, weights * per_load)


def _cost(convolution: Convolution, tile: OutputTile, per_load: float) -> float:
    """The cost of Winograd's method, in multiply-adds."""
    channels, inner = convolution.filter.shape[:2]
    points, tiles = tile.points(convolution), tile.count(convolution)
    weights = points * channels * inner
    passed = math.prod((points, tiles, channels + inner))
    return max(weights * tiles, weights * per_load) + passed * per_load / 2
