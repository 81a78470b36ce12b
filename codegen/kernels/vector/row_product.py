"""A matrix product by a weight in 8 bits whose LHS is f32 in memory: a workgroup quantises its rows and multiplies
them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

from sartor.codegen.ir.layer import I8, TensorType
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.variants.rounding import LEVELS, MOST_LEVELS, REACH
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.isa.multipliers import DotElement, DotProduct
from sartor.codegen.kernels.layers.product_layer import ProductLayer
from sartor.codegen.kernels.loops.epilogue import TileOrigin
from sartor.codegen.kernels.loops.nest import Accumulate, Nest, Starts, Tile
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
        return TensorType((prod(self.groups) * self.rows.elements,), I8)

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""
        number = number_of(asm, self.groups, group)
        nest = self.contraction.nest
        rows = workgroup_range(asm, nest.rows.output, nest.groups[0], group[0])
        self.rows.write(asm, (memories[self.lhs], memories[-1]), number, group[2], rows)
        multiply = self.contraction.accumulation(asm, memories)
        nest.write(asm, memories, group, of_workgroup(multiply, number, lambda origin: origin.inside))


def number_of(asm: Assembler, groups: tuple[int, int, int], group: tuple[Index, Index, Index]) -> Index:
    """The number of a workgroup among all."""
    first, second, _ = groups
    return asm.add(group[0], asm.mul(group[1], first), asm.mul(group[2], first * second))


def row_product(layer: ProductLayer, tiling: Tiling, element: DotElement) -> RowProduct:
    """The kernel of a product.

    Args:
        layer: the layer that becomes a kernel; its weight is packed.
        tiling: sizes of tiles, of one line each.
        element: instruction that multiplies groups of numbers without a sign by signed ones.

    Raises:
        RejectionError: if the layer cannot be computed so.
    """
    columns = chunk(layer.rows, tiling.columns)
    nest = nest_of(layer, tiling).joined(columns)
    most = largest_range(nest.rows.output, nest.groups[0]) * columns
    rows = RowScales(
        replace(layer.lhs, row=columns * layer.lhs.column), layer.shape.depth, element.group, columns, most
    )
    return RowProduct(layer.memories[0], rows, row_contraction(layer, nest, rows, element))


def nest_of(layer: ProductLayer, tiling: Tiling) -> Nest:
    """The loops of a product, with all rows as the pixels of one row of an image."""
    return Nest(layer.batches, *layer.axes, layer.result, layer.epilogue, layer.lanes, layer.shape.columns, tiling)


def row_contraction(layer: ProductLayer, nest: Nest, rows: RowScales, element: DotElement) -> Contraction:
    """The contraction of quantised rows, with the workgroup's number for the batch.

    Args:
        layer: the layer that becomes a kernel; its weight is packed.
        nest: its loops.
        rows: how rows are quantised.
        element: instruction that multiplies groups of numbers without a sign by signed ones.

    Raises:
        RejectionError: if the layer cannot be computed so.
    """
    shape, lanes, tiling = layer.shape, layer.lanes, nest.tiling
    if shape.depth > MOST_PRODUCTS:
        raise RejectionError(f"sums of {shape.depth} products with outliers may exceed 32 bits")
    matrix = TensorType((shape.depth, shape.columns), element.dtype)
    packed = pack_dot_matrix(matrix, tiling.vectors * lanes, lanes, element)
    if packed.meaning is None:
        raise RejectionError("the instruction does not multiply integers")
    layer.rewrite.extend_packing(layer.weight, packed.packing)
    multiplier, strides = DotProduct(element, has_sign=False), packed.strides
    return Contraction(
        nest=nest,
        depth=-(-shape.depth // element.group) * element.group,
        image=rows.strides,
        filters=strides,
        memories=(_LAST, layer.memories[1]),
        multiplier=multiplier,
        meaning=RowSums(rows, multiplier, strides.depth, strides.vector, packed.meaning.numbers, packed.meaning.panel),
    )


def of_workgroup(multiply: Accumulate, number: Index, row: Callable[[TileOrigin], Index]) -> Accumulate:
    """The function that emits the sums of a tile of a workgroup's quantised rows.

    Args:
        multiply: emits sums.
        number: the workgroup's number.
        row: tells a tile's row among the quantised ones.
    """

    def accumulate(tile: Tile, starts: Starts) -> list[ir.Value]:
        of, own = tile.origin, row(tile.origin)
        return multiply(replace(tile, origin=TileOrigin(number, own, of.column, of.vector, own)), starts)

    return accumulate
