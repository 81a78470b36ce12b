"""A matrix product by a weight in 8 bits whose LHS is f32 in memory: a workgroup quantises its rows and multiplies
them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sartor.codegen.ir.layer import I8, TensorType
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.variants.rounding import LEVELS, MOST_LEVELS, REACH
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.isa.multipliers import DotElement, DotProduct
from sartor.codegen.kernels.layers.product_layer import ProductLayer
from sartor.codegen.kernels.loops.epilogue import TileOrigin
from sartor.codegen.kernels.loops.nest import Nest, Starts, Tile
from sartor.codegen.kernels.loops.partition import largest_range, workgroup_range
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.kernels.loops.tilings import chunk
from sartor.codegen.kernels.vector.contraction import Contraction
from sartor.codegen.kernels.vector.dot_packing import pack_dot_matrix
from sartor.codegen.kernels.vector.row_scales import RowScales
from sartor.codegen.kernels.vector.row_sums import RowSums
from sartor.codegen.mlir.iree_compiler import ir

# The largest sum is that of all numbers at the end of the range and of outliers with ``MOST_LEVELS`` steps, by weights
# of -128. At most a ``REACH``-th of the numbers exceeds ``REACH`` times their mean size, and so many again the rest's.
MOST_PRODUCTS = int((1 << 31) / (128 * (LEVELS + 2 / REACH * MOST_LEVELS)))
# The workspace follows all other buffers.
_LAST = -1


@dataclass(frozen=True)
class RowProduct:
    """The kernel.

    Attributes:
        lhs: position of the LHS among the buffers; the workspace is the last one.
        rows: how rows are quantised.
        contraction: multiplies quantised rows, with the workgroup's number for the batch.
    """

    lhs: int
    rows: RowScales
    contraction: Contraction

    @property
    def groups(self) -> tuple[int, int, int]:
        """Number of workgroups in each dimension."""
        return self.contraction.groups

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return self.contraction.lanes

    @property
    def workspace(self) -> TensorType:
        """Type of the quantised rows of all workgroups."""
        first, second, third = self.groups
        return TensorType((first * second * third * self.rows.elements,), I8)

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""
        first, second, _ = self.groups
        number = asm.add(group[0], asm.mul(group[1], first), asm.mul(group[2], first * second))
        nest = self.contraction.nest
        rows = workgroup_range(asm, nest.rows.output, nest.groups[0], group[0])
        self.rows.write(asm, (memories[self.lhs], memories[-1]), number, group[2], rows)
        multiply = self.contraction.accumulation(asm, memories)

        def accumulate(tile: Tile, starts: Starts) -> list[ir.Value]:
            of = tile.origin
            return multiply(
                replace(tile, origin=TileOrigin(number, of.inside, of.column, of.vector, of.inside)), starts
            )

        nest.write(asm, memories, group, accumulate)


def row_product(layer: ProductLayer, tiling: Tiling, element: DotElement) -> RowProduct:
    """The kernel of a product.

    Args:
        layer: the layer that becomes a kernel; its weight is packed.
        tiling: sizes of tiles, of one line each.
        element: instruction that multiplies groups of numbers without a sign by signed ones.

    Raises:
        RejectionError: if the layer cannot be computed so.
    """
    shape, lanes, lhs, weight = layer.shape, layer.lanes, layer.lhs, layer.weight
    if shape.depth > MOST_PRODUCTS:
        raise RejectionError(f"sums of {shape.depth} products with outliers may exceed 32 bits")
    packed = pack_dot_matrix(
        TensorType((shape.depth, shape.columns), element.dtype), tiling.vectors * lanes, lanes, element
    )
    if packed.meaning is None:
        raise RejectionError("the instruction does not multiply integers")
    layer.rewrite.extend_packing(weight, packed.packing)
    columns = chunk(layer.rows, tiling.columns)
    nest = Nest(layer.batches, *layer.axes, layer.result, layer.epilogue, lanes, shape.columns, tiling).joined(columns)
    most = largest_range(nest.rows.output, nest.groups[0]) * columns
    rows = RowScales(replace(lhs, row=columns * lhs.column), shape.depth, element.group, columns, most)
    position, filters = layer.memories
    multiplier, strides = DotProduct(element, has_sign=False), packed.strides
    contraction = Contraction(
        nest=nest,
        depth=-(-shape.depth // element.group) * element.group,
        image=rows.strides,
        filters=strides,
        memories=(_LAST, filters),
        multiplier=multiplier,
        meaning=RowSums(rows, multiplier, strides.depth, strides.vector, packed.meaning.numbers, packed.meaning.panel),
    )
    return RowProduct(position, rows, contraction)
