"""Convolutions with panels of weights and sums in registers, in our own workgroups.

Images are in NHWC. A workgroup computes some rows of a panel of channels, and reads its filters front to back. IREE
lowers each workgroup to one-dimensional convolutions. Tile sizes are searched.
"""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.analysis.convolution import convolution_of
from sartor.codegen.analysis.register_tiles import register_tiles, row_block
from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected, integer
from sartor.codegen.ir.variants.traits import TILED_SLOWDOWN, Traits
from sartor.codegen.lowerings.image_tiling import tiled_images
from sartor.codegen.mlir.machine import float_machine

_LOOPS = ("N", "H", "W", "OC", "KH", "KW", "IC")


@dataclass(frozen=True)
class TiledConvolution:
    """NHWC convolution.

    Parameters: ``workgroup`` (rows and channels), ``register`` (columns and channels) and ``depth`` (input channels per
    step).
    """

    name: str = "tiled"

    @property
    def traits(self) -> Traits:
        return Traits("tiled", slowdown=TILED_SLOWDOWN, beside_kernels=frozenset())

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        machine = float_machine(task, target)
        if isinstance(machine, Rejected):
            return machine
        convolution = convolution_of(task)
        if convolution is None:
            return Rejected("not a two-dimensional convolution without groups")
        if convolution.is_product:
            return Rejected("a matrix product, which has its own tilings")
        _, channels, height, width = convolution.result.shape
        depth = convolution.filter.shape[1]
        return [
            {
                "workgroup": (row_block(height, channels // tile.panel), tile.panel),
                "register": (tile.rows, tile.columns),
                "depth": tile.depth,
            }
            for tile in register_tiles(width, channels, depth, machine)
        ]

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        return tiled_images(task, parameters, target, _LOOPS, (1, 1, integer(parameters["depth"])))
