"""Winograd's minimal filtering for 3x3 convolutions (Lavin and Gray, 2016), filters transformed at compile time.

On a CPU the transforms are dispatches of our own and the products run in tiles of ours. IREE's Winograd ops, which
take several times as long there and know output tiles of 6 alone, serve the other devices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sartor.codegen.convolution import Convolution, convolution_of
from sartor.codegen.draft import Draft, rewritten
from sartor.codegen.layer import LayerKind, Task
from sartor.codegen.layouts import CHANNELS_LAST
from sartor.codegen.machine import Machine, float_machine
from sartor.codegen.register_tiles import register_tiles, row_block
from sartor.codegen.routine import Implementation, Parameters, Rejected, integer
from sartor.codegen.target import Target
from sartor.codegen.winograd_layer import tiling_of, use_iree_ops, use_own_transforms
from sartor.codegen.winograd_text import Tiling
from sartor.codegen.workgroups import WorkgroupTiling

_OUTPUT_TILES = (4, 6, 2)
_IREE_OUTPUT_TILE = 6
_FEWEST_CHANNELS = 16
_MOST_ROWS = 256

# Multiply-adds that take as long as reading four bytes that no cache holds; a direct convolution reads its filter
# once, Winograd's reads one that is larger, and passes its tiles through memory twice.
_PRODUCTS_PER_LOAD = 30
_WORTH_TRYING = 0.9
_MOST_CHOICES = 2


@dataclass(frozen=True)
class Winograd:
    """NHWC convolution with 3x3 filters, stride 1 and no dilation. Parameter: ``tile``, output pixels per side."""

    name: str = "winograd"

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        convolution = applicable(task)
        if isinstance(convolution, Rejected):
            return convolution
        if target.device != "cpu":
            return [{"tile": _IREE_OUTPUT_TILE}]
        tiles = promising_tiles(convolution)
        return tiles if isinstance(tiles, Rejected) else [{"tile": tile} for tile in tiles]

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        convolution = applicable(task)
        if isinstance(convolution, Rejected):
            return convolution
        draft = Draft.images(task, CHANNELS_LAST)
        machine = float_machine(task, target)
        if isinstance(machine, Rejected):
            tiling = tiling_of(convolution, integer(parameters["tile"]), 1)
            return rewritten(draft, lambda each: use_iree_ops(each, convolution, tiling))
        tiling = tiling_of(convolution, integer(parameters["tile"]), machine.lanes)
        return rewritten(draft, lambda each: _rewrite(each, convolution, tiling, machine))


def applicable(task: Task) -> Convolution | Rejected:
    """The convolution at the root of a layer that Winograd's method computes, or why it does not."""
    convolution = convolution_of(task) if task.kind is LayerKind.CONVOLUTION else None
    if convolution is None:
        return Rejected("not a two-dimensional convolution without groups")
    if convolution.filter.shape[2:] != (3, 3) or convolution.strides != (1, 1) or convolution.dilations != (1, 1):
        return Rejected("not a 3x3 filter with stride 1 and no dilation")
    if any(each.dtype != "f32" for each in (convolution.image, convolution.filter, convolution.result)):
        return Rejected("its sums need the precision of f32")
    if min(convolution.filter.shape[:2]) < _FEWEST_CHANNELS:
        return Rejected("too few channels for products of matrices")
    return convolution


def promising_tiles(convolution: Convolution) -> list[int] | Rejected:
    """Output tiles worth trying, best guess first, or why there is none."""
    costs = {tile: _cost(convolution, tile) for tile in _OUTPUT_TILES}
    direct = _direct_cost(convolution)
    good = sorted((tile for tile in _OUTPUT_TILES if costs[tile] < _WORTH_TRYING * direct), key=costs.__getitem__)
    if not good:
        return Rejected("too few pixels for so many channels: larger filters would cost more than they save")
    return good[:_MOST_CHOICES]


def _direct_cost(convolution: Convolution) -> float:
    """Of the convolution itself, in multiply-adds."""
    weights = convolution.filter.elements
    batch, _, height, width = convolution.result.shape
    return max(weights * batch * height * width, weights * _PRODUCTS_PER_LOAD)


def _cost(convolution: Convolution, output_tile: int) -> float:
    """Of Winograd's method, in multiply-adds."""
    tiling = tiling_of(convolution, output_tile, 1)
    channels, inner = convolution.filter.shape[:2]
    weights = tiling.size**2 * channels * inner
    passed = sum(math.prod(tiling.transformed(each)) for each in (channels, inner))
    return max(weights * tiling.tiles, weights * _PRODUCTS_PER_LOAD) + passed * _PRODUCTS_PER_LOAD / 2


def _rewrite(draft: Draft, convolution: Convolution, tiling: Tiling, machine: Machine) -> None:
    use_own_transforms(draft, convolution, tiling)
    channels, inner = convolution.filter.shape[:2]
    tile = register_tiles(tiling.tiles, channels, inner, machine)[0]
    groups = tiling.size**2 * (channels // tile.panel)
    WorkgroupTiling(
        workgroup=(1, row_block(tiling.tiles, groups, _MOST_ROWS), tile.panel),
        register=(1, tile.rows, tile.columns),
        reduction=(tile.depth,),
        pipeline="DoubleTilingExpert",
    ).apply(draft)
