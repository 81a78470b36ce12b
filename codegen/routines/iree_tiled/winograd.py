"""Winograd's minimal filtering for 3x3 convolutions (Lavin and Gray, 2016), filters transformed at compile time.

On a CPU, transforms are our own dispatches, and products have our own tiles. Other devices use IREE's Winograd ops,
which take several times as long on a CPU and support only output tiles of 6.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sartor.codegen.analysis.convolution import Convolution
from sartor.codegen.analysis.register_tiles import register_tiles, row_block
from sartor.codegen.analysis.winograd_tiles import applicable, promising_tiles
from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.layouts import CHANNELS_LAST
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected, integer, required
from sartor.codegen.ir.variants.traits import LOWERED, Traits
from sartor.codegen.ir.winograd import KERNEL
from sartor.codegen.lowerings.winograd_layer import tiling_of, use_iree_ops, use_own_transforms
from sartor.codegen.lowerings.winograd_text import Tiling
from sartor.codegen.lowerings.workgroups import WorkgroupTiling
from sartor.codegen.mlir.machine import Machine, float_machine
from sartor.codegen.mlir.rewriting.rewrite import Rewrite, rewritten

_IREE_OUTPUT_TILE = 6
_MOST_ROWS = 256
_MOST_CHOICES = 2


@dataclass(frozen=True)
class Winograd:
    """NHWC convolution with 3x3 filters, stride 1 and no dilation. Parameter: ``tile``, output pixels per side."""

    name: str = "winograd"

    @property
    def traits(self) -> Traits:
        return replace(LOWERED, transforms=True)

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        convolution = required(_match(task))
        if not target.is_cpu:
            return [{"tile": _IREE_OUTPUT_TILE}]
        tiles = required(promising_tiles(convolution))
        return [{"tile": tile.height} for tile in tiles[:_MOST_CHOICES]]

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        convolution = required(_match(task))
        rewrite = Rewrite.images(task, CHANNELS_LAST)
        machine = float_machine(task, target)
        if isinstance(machine, Rejected):
            tiling = tiling_of(convolution, integer(parameters["tile"]), 1)
            return rewritten(rewrite, lambda layer_rewrite: use_iree_ops(layer_rewrite, convolution, tiling), target)
        tiling = tiling_of(convolution, integer(parameters["tile"]), machine.lanes)
        return rewritten(rewrite, lambda layer_rewrite: _rewrite(layer_rewrite, convolution, tiling, machine), target)


def _match(task: Task) -> Convolution | Rejected:
    convolution = applicable(task)
    if isinstance(convolution, Convolution) and convolution.filter.shape[2:] != (KERNEL, KERNEL):
        return Rejected("not a 3x3 filter")
    return convolution


def _rewrite(rewrite: Rewrite, convolution: Convolution, tiling: Tiling, machine: Machine) -> None:
    use_own_transforms(rewrite, convolution, tiling)
    channels, inner = convolution.filter.shape[:2]
    tile = register_tiles(tiling.tiles, channels, inner, machine)[0]
    groups = tiling.size**2 * (channels // tile.panel)
    WorkgroupTiling(
        workgroup=(1, row_block(tiling.tiles, groups, _MOST_ROWS), tile.panel),
        register=(1, tile.rows, tile.columns),
        reduction=(tile.depth,),
        pipeline="DoubleTilingExpert",
    ).apply(rewrite)
