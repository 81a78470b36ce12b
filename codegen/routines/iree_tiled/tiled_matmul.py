"""Matrix products with panels of weights and sums in registers, in our own workgroups.

They are for products by weights or activations, with or without batches, and for 1x1 convolutions, whose pixels in NHWC
are the rows. A workgroup computes some rows of a panel of columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sartor.codegen.analysis.matmul import MatmulShape, product_rewrite, product_shape
from sartor.codegen.analysis.register_tiles import register_tiles, row_block, vector_tiles
from sartor.codegen.ir.layer import LayerKind, Task
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected, integer, pair, required
from sartor.codegen.ir.variants.traits import TILED_SLOWDOWN, Traits
from sartor.codegen.lowerings.workgroups import WorkgroupTiling
from sartor.codegen.mlir.machine import Machine, float_machine
from sartor.codegen.mlir.rewriting.rewrite import rewritten

_MOST_ROWS = 128


@dataclass(frozen=True)
class TiledMatmul:
    """Matrix product.

    Parameters: ``workgroup`` (rows and columns), ``register`` (rows and columns of a register tile) and ``depth``
    (reduction steps that are written out).
    """

    name: str = "tiled"

    @property
    def traits(self) -> Traits:
        return Traits("tiled", slowdown=TILED_SLOWDOWN, beside_kernels=frozenset({LayerKind.CONTRACTION}))

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        machine = required(float_machine(task, target))
        shape = required(product_shape(task))
        return _choices(shape, machine)

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        shape = required(product_shape(task))
        skipped = 0 if shape.rows is not None else 1
        ones = (1,) * len(shape.batches)
        tiling = WorkgroupTiling(
            workgroup=(*ones, *pair(parameters["workgroup"])[skipped:]),
            register=(*ones, *pair(parameters["register"])[skipped:]),
            reduction=(integer(parameters["depth"]),),
            pipeline="DoubleTilingExpert",
        )
        return rewritten(product_rewrite(task), tiling.apply, target)


def _choices(shape: MatmulShape, machine: Machine) -> list[Parameters]:
    if shape.rows is None:
        tiles = vector_tiles(shape.columns, shape.depth, machine)
    else:
        tiles = register_tiles(shape.rows, shape.columns, shape.depth, machine)
    groups = math.prod(shape.batches) * shape.columns
    return [
        {
            "workgroup": (row_block(shape.rows or 1, groups // tile.panel, _MOST_ROWS), tile.panel),
            "register": (tile.rows, tile.columns),
            "depth": tile.depth,
        }
        for tile in tiles
    ]
