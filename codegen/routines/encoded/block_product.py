"""Matrix products by weights in blocks of small integers, by our own kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.analysis.matmul import MatmulShape, product_rewrite, product_shape
from sartor.codegen.ir.layer import LayerKind, Task
from sartor.codegen.ir.packing import Packing
from sartor.codegen.ir.schema import schemas_of
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.encoded.block_contraction import BlockContraction
from sartor.codegen.kernels.encoded.encoded_weight import EncodedWeight, encoded_weight
from sartor.codegen.kernels.encoded.packed_blocks import PackedBlocks
from sartor.codegen.kernels.layers.kernel_layer import KernelLayer, KernelParts, build_kernel
from sartor.codegen.kernels.layers.product_layer import ProductLayer
from sartor.codegen.kernels.loops.access import ImageStrides
from sartor.codegen.kernels.loops.nest import Nest
from sartor.codegen.kernels.loops.partition import long_workgroups
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.kernels.loops.tilings import chunk
from sartor.codegen.mlir.kernel_machine import kernel_machine
from sartor.codegen.mlir.machine import Machine

# Vectors of a panel. One row needs no more than hide latencies; with more rows, each word that is decoded should serve
# as many as the registers hold.
_WIDTHS_OF_ROW = (4, 2, 8, 1)
_WIDTHS = (2, 4, 1)
_MOST_ROWS = 12
# Registers of a tile beside sums: for each vector a scale, a shift, words and an element, and the table of codes.
_OF_VECTOR, _OTHERS = 3, 2


@dataclass(frozen=True)
class BlockProduct:
    """Multiplies f32 by codes, which are decoded in registers.

    Parameters: those of ``Tiling``; ``columns`` of a register tile are rows of the LHS.

    Attributes:
        name: the algorithm in descriptors.
    """

    name: str = "block_product"

    @property
    def traits(self) -> Traits:
        return Traits(family="block_product", sizes=Tiling.names())

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        if task.kind is not LayerKind.CONTRACTION:
            return Rejected("not a matrix product")
        weight = encoded_weight(task)
        if isinstance(weight, Rejected):
            return weight
        machine, shape = kernel_machine(weight.plain, target), product_shape(weight.plain)
        if isinstance(machine, Rejected):
            return machine
        if isinstance(shape, Rejected):
            return shape
        return [tiling.parameters() for tiling in _tilings(shape, machine)]

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        return build_kernel(self, task, parameters, target)

    def layer(self, task: Task, parameters: Parameters, target: Target) -> KernelLayer:
        """The kernel of a product.

        Raises:
            ValueError: if there is no kernel for the layer.
        """
        weight = encoded_weight(task)
        if isinstance(weight, Rejected):
            raise ValueError(weight.reason)
        machine, rewrite = kernel_machine(weight.plain, target), product_rewrite(weight.plain)
        if isinstance(machine, Rejected) or isinstance(rewrite, Rejected):
            raise ValueError("not a matrix product for kernels")
        with rewrite.module.context:
            product = ProductLayer.of(rewrite, machine.lanes)
            code = _contraction(product, weight, len(task.inputs), Tiling.of(parameters))
        inputs = schemas_of(task.inputs, rewrite.inputs, target.device)
        (output,) = schemas_of(task.results, rewrite.outputs, target.device)
        return KernelLayer.of(task, rewrite, inputs, output, KernelParts(code))


def _contraction(product: ProductLayer, weight: EncodedWeight, inputs: int, tiling: Tiling) -> BlockContraction:
    """The kernel of a product, whose rewrite gets the packings of the weight's parts.

    Raises:
        ValueError: if the layer cannot be computed so.
    """
    codes = product.weight
    if codes != weight.parts[0] or product.rewrite.packings[codes] != Packing():
        raise ValueError("the layer reshapes its weight in blocks of integers")
    blocks = PackedBlocks(weight.encoding, product.lanes, tiling.vectors)
    for part, packing in zip(weight.parts, blocks.packings(len(weight.parts)), strict=True):
        product.rewrite.set_packing(part, packing.steps)
    columns = chunk(product.rows, tiling.columns)
    nest = Nest(
        product.batches,
        *product.axes,
        product.result,
        product.epilogue,
        product.lanes,
        product.shape.columns,
        tiling,
    )
    lhs = product.lhs
    image = ImageStrides(lhs.batch, columns * lhs.column, lhs.column, lhs.block, lhs.blocks)
    memories = (product.memories[0], *(inputs + part for part in weight.parts))
    return BlockContraction(nest.joined(columns), blocks, image, memories)


def _tilings(shape: MatmulShape, machine: Machine) -> Sequence[Tiling]:
    """Sizes worth trying, best guess first."""
    rows, vectors = shape.rows or 1, -(-shape.columns // machine.lanes)
    found = []
    for wide in _WIDTHS_OF_ROW if rows == 1 else _WIDTHS:
        if wide > vectors and wide > 1:
            continue
        free = machine.registers - _OTHERS - _OF_VECTOR * wide
        most = 1 if rows == 1 else min(rows, _MOST_ROWS, max(1, free // wide))
        tile = -(-rows // -(-rows // most))
        panels = -(-vectors // wide)
        found.append(Tiling(1, tile, wide, 1, long_workgroups(panels, machine.threads), 1))
    return list(dict.fromkeys(found))
