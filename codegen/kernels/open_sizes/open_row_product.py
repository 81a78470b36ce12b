"""A matrix product by a weight in 8 bits of any number of rows in f32, each of which is quantised by its own range.

A workgroup takes its rows by blocks of a fixed number of register tiles: it quantises those of a block, and multiplies
them by all of its panels. So the workspace does not grow with the number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from sartor.codegen.ir.layer import I8, TensorType
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.sizes.fit import Fit
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.isa.multipliers import DotElement
from sartor.codegen.kernels.layers.product_layer import ProductLayer
from sartor.codegen.kernels.loops.nest import Accumulate, each_panel
from sartor.codegen.kernels.loops.panels import Panel
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.kernels.open_sizes.open_rows import OpenRows, Share, rows_by
from sartor.codegen.kernels.open_sizes.row_cut import RowCut
from sartor.codegen.kernels.vector.contraction import Contraction
from sartor.codegen.kernels.vector.row_product import nest_of, number_of, of_workgroup, row_contraction
from sartor.codegen.kernels.vector.row_scales import RowScales
from sartor.codegen.mlir.iree_compiler import ir

# The low bits of a block stay in the cache beside a panel of the filters, which is read once for a block.
_BLOCK_BYTES = 1 << 16


@dataclass(frozen=True)
class OpenRowProduct:
    """The kernel.

    Attributes:
        lhs: position of the LHS among the buffers; the workspace is the last one.
        scales: how the rows of a block are quantised.
        rows: multiplies quantised rows, with the workgroup's number for the batch.
        block: register tiles of a block.
    """

    lhs: int
    scales: RowScales
    rows: OpenRows
    block: int

    @property
    def groups(self) -> tuple[int, int, int]:
        """Number of workgroups in each dimension, whatever the number of rows; some may have nothing to do."""
        return self.rows.groups

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return self.rows.lanes

    @property
    def workspace(self) -> TensorType:
        """Type of the quantised rows of a block of all workgroups."""
        return TensorType((prod(self.groups) * self.scales.elements,), I8)

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""
        cut = self.rows.cut(asm)
        share, number = self.rows.share(asm, cut.tiles, group), number_of(asm, self.groups, group)
        first, end = share.tiles

        def every(tile: Index) -> None:
            part = share._replace(tiles=(tile, asm.minimum(asm.add(tile, self.block), end)))
            self._write_block(asm, memories, cut, part, number)

        # A workgroup without panels has nothing to multiply its rows by.
        is_used = asm.any_of(share.has_last, asm.less(*share.panels))
        asm.when(is_used, lambda: asm.repeat(first, end, self.block, every))

    def _write_block(
        self, asm: Assembler, memories: Sequence[ir.Value], cut: RowCut, share: Share, number: Index
    ) -> None:
        """Emit the quantisation of the rows of some tiles, and their products."""
        begin, parts = cut.row(asm, share.tiles[0]), cut.parts(asm, share.tiles)
        rows = begin, cut.row(asm, share.tiles[1])
        self.scales.write(asm, (memories[self.lhs], memories[-1]), number, 0, rows)

        def accumulation(tiles: Contraction) -> Accumulate:
            multiply = tiles.accumulation(asm, memories)
            return of_workgroup(multiply, number, lambda origin: asm.sub(origin.row, begin))

        def write(panel: Panel) -> None:
            self.rows.write_heights(asm, memories, parts, panel, accumulation)

        each_panel(asm, self.rows.tiles.nest.grid, share.panels, share.has_last, write)


def open_row_product(layer: ProductLayer, fit: Fit, tiling: Tiling, element: DotElement) -> OpenRowProduct:
    """The kernel of a product of any number of rows.

    Args:
        layer: with its twin; their weights are packed.
        fit: finds what the number of rows follows from.
        tiling: sizes of tiles, of one line each.
        element: instruction that multiplies groups of numbers without a sign by signed ones.

    Raises:
        RejectionError: if the layer cannot be computed so.
    """
    image, depth = replace(layer.lhs, row=layer.lhs.column), layer.shape.depth
    one = RowScales(image, depth, element.group, 1, 1)
    block = max(1, min(_BLOCK_BYTES // (one.pitch * tiling.columns), -(-layer.rows // tiling.columns)))
    scales = replace(one, most=block * tiling.columns)

    def contraction(product: ProductLayer) -> Contraction:
        if product.lhs.column != image.column:
            raise RejectionError("the distance between rows of the LHS is known only when it runs")
        return row_contraction(product, nest_of(product, tiling).joined(1), scales, element)

    return OpenRowProduct(layer.memories[0], scales, rows_by(layer, fit, tiling, contraction), block)
