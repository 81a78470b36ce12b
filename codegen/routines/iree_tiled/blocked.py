"""Channels in blocks, NCHW[x]c with filters KCRS[x]c[y]k (NeoCPU, section III-A); IREE generates the code.

A convolution is one dispatch in which a workgroup computes a row of one block of channels; for other layers IREE
chooses tiles.
"""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.analysis.convolution import convolution_of
from sartor.codegen.analysis.register_tiles import row_block
from sartor.codegen.ir.layer import LayerKind, Task
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected, integer
from sartor.codegen.ir.variants.traits import LOWERED, Traits
from sartor.codegen.lowerings.blocked_conv import split_input_blocks
from sartor.codegen.lowerings.workgroups import WorkgroupTiling
from sartor.codegen.mlir.machine import Machine, float_machine, machine_of
from sartor.codegen.mlir.rewriting.convert import has_images
from sartor.codegen.mlir.rewriting.rewrite import Rewrite, rewritten

_SMALLEST_BLOCK = 8
_DEPTH = 4
_FEWEST_COLUMNS = 4
# IREE rejects larger tiles, because it fills them at once.
_WIDEST_ROW = 256


@dataclass(frozen=True)
class Blocked:
    """Layout NCHW[x]c for layers on images whose channels divide into blocks. Parameter: ``block``, channels in a
    block."""

    name: str = "nchwc"

    @property
    def traits(self) -> Traits:
        return LOWERED

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        if not target.is_cpu:
            return Rejected("blocks of channels are a layout for vector registers")
        if task.kind is LayerKind.FIXED or not has_images(task):
            return Rejected("there is no image whose layout could change")
        return [{"block": max(_SMALLEST_BLOCK, machine_of(target).lanes)}]

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        rewrite = Rewrite.images(task, f"nchw{integer(parameters['block'])}c")
        machine = float_machine(task, target)
        if task.kind is not LayerKind.CONVOLUTION or convolution_of(task) is None or isinstance(machine, Rejected):
            return rewritten(rewrite, lambda layer_rewrite: None, target)
        return rewritten(
            rewrite, lambda layer_rewrite: _tile(layer_rewrite, integer(parameters["block"]), machine), target
        )


def _tile(rewrite: Rewrite, block: int, machine: Machine) -> None:
    width = row_block(rewrite.task.results[0].shape[-1], _WIDEST_ROW, _WIDEST_ROW)
    # Loops inside the loop over blocks are not peeled, so the tile has to divide the row.
    columns = row_block(width, _WIDEST_ROW, machine.accumulators * machine.lanes // max(block, machine.lanes))
    if columns < min(width, _FEWEST_COLUMNS):
        raise RejectionError(f"no tile of columns divides rows of {width}")
    tiling = WorkgroupTiling(
        workgroup=(1, 1, 1, width, block),
        register=(1, 1, 1, columns, block),
        reduction=(1, 1, 1, _DEPTH),
        pipeline="ConvTileAndDecomposeExpert",
    )
    tiling.apply(rewrite)
    split_input_blocks(rewrite, columns, _DEPTH)
