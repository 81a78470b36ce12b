"""A matrix product by a weight whose number of rows is known only when it runs.

Rows are cut into register tiles of even heights, for each of which there is code. They are computed panel by panel, so
that filters are read once.

Workgroups that partition the rows of large products have nothing to do where rows are few: then they partition the
panels, which is known only when it runs, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from sartor.codegen.ir.packing import Storage
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.sizes.dims import Count
from sartor.codegen.ir.sizes.fit import Fit
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Condition, Index
from sartor.codegen.kernels.isa.multipliers import DotElement
from sartor.codegen.kernels.layers.product_layer import ProductLayer
from sartor.codegen.kernels.loops.nest import Accumulate, each_panel
from sartor.codegen.kernels.loops.panels import Panel
from sartor.codegen.kernels.loops.partition import workgroup_range
from sartor.codegen.kernels.loops.tiles import Axis
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.kernels.open_sizes.row_cut import CutParts, RowCut, cut_rows
from sartor.codegen.kernels.vector.contraction import Contraction
from sartor.codegen.kernels.vector.product import unjoined_contraction
from sartor.codegen.mlir.iree_compiler import ir


class Share(NamedTuple):
    """What a workgroup computes.

    Attributes:
        tiles: the first register tile and the end.
        panels: the first panel and the end.
        has_last: whether the last panel is among them.
    """

    tiles: tuple[Index, Index]
    panels: tuple[Index, Index]
    has_last: Condition


@dataclass(frozen=True)
class OpenRows:
    """A product of any number of rows.

    Attributes:
        tiles: the contraction, each of whose rows is a row of an image.
        rows: the number of rows.
    """

    tiles: Contraction
    rows: Count

    @property
    def groups(self) -> tuple[int, int, int]:
        """Number of workgroups in each dimension, whatever the number of rows; some may have nothing to do."""
        return self.tiles.nest.groups

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return self.tiles.nest.lanes

    @property
    def memories(self) -> tuple[int, int]:
        """Positions of both matrices among the buffers."""
        return self.tiles.memories

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""
        cut = self.cut(asm)
        share = self.share(asm, cut.tiles, group)
        parts = cut.parts(asm, share.tiles)
        each_panel(
            asm,
            self.tiles.nest.grid,
            share.panels,
            share.has_last,
            lambda panel: self.write_parts(asm, memories, parts, panel),
        )

    def share(self, asm: Assembler, count: Index, group: tuple[Index, Index, Index]) -> Share:
        """The share of a workgroup, given the number of register tiles."""
        (row_groups, panel_groups, _), panels = self.groups, self.tiles.nest.grid.panels
        tiles = workgroup_range(asm, count, row_groups, group[0])
        if row_groups == 1 or panel_groups > 1 or panels == 1:
            own = workgroup_range(asm, panels, panel_groups, group[1])
            return Share(tiles, own, asm.equal(group[1], panel_groups - 1))
        # With fewer tiles than workgroups some of these would wait for the others.
        is_few = asm.less(count, row_groups)
        first, end = workgroup_range(asm, panels, row_groups, group[0])
        return Share(
            (asm.chosen(is_few, 0, tiles[0]), asm.chosen(is_few, count, tiles[1])),
            (asm.chosen(is_few, first, 0), asm.chosen(is_few, end, panels)),
            asm.any_of(asm.less(row_groups - 1, count), asm.equal(group[0], row_groups - 1)),
        )

    def cut(self, asm: Assembler) -> RowCut:
        """How the rows are cut into register tiles."""
        return cut_rows(asm, asm.size(self.rows), self.tiles.nest.tiling.columns)

    def write_parts(
        self, asm: Assembler, memories: Sequence[ir.Value], parts: CutParts, panel: Panel, shift: Index = 0
    ) -> None:
        """Emit a panel of some register tiles.

        Args:
            asm: emits the code.
            memories: all buffers.
            parts: the tiles.
            panel: the panel.
            shift: how far from its usual place the LHS lies in its memory, in elements.
        """

        def accumulation(tiles: Contraction) -> Accumulate:
            return tiles.shifted_accumulation(asm, memories, shift)

        self.write_heights(asm, memories, parts, panel, accumulation)

    def write_heights(
        self,
        asm: Assembler,
        memories: Sequence[ir.Value],
        parts: CutParts,
        panel: Panel,
        accumulation: Callable[[Contraction], Accumulate],
    ) -> None:
        """As ``write_parts``, with the function that emits the sums of tiles of one height."""
        for height in range(self.tiles.nest.tiling.columns, 0, -1):
            nest = replace(self.tiles.nest, columns=_adjacent(self.tiles.nest.columns, height))
            accumulate = accumulation(replace(self.tiles, nest=nest))
            is_used, rows = parts.of_height(asm, height)
            asm.when(
                is_used,
                lambda nest=nest, rows=rows, accumulate=accumulate, height=height: nest.write_panel(  # type: ignore[misc]
                    asm, memories, rows, panel, accumulate, step=height
                ),
            )


def open_rows(
    layer: ProductLayer, fit: Fit, tiling: Tiling, weights: Storage | None, element: DotElement | None = None
) -> OpenRows:
    """The product of a layer of any number of rows.

    Args:
        layer: with its twin.
        fit: finds what the number of rows follows from.
        tiling: sizes of tiles.
        weights: how the RHS is stored for sums of f32; None for as it is.
        element: instruction that multiplies groups; None for single numbers in f32.

    Raises:
        RejectionError: if the RHS is no weight, or more than the number of rows is known only when it runs.
    """
    return rows_by(
        layer, fit, tiling, lambda product: unjoined_contraction(product, tiling, element, weights).joined(1)
    )


def rows_by(
    layer: ProductLayer, fit: Fit, tiling: Tiling, contraction: Callable[[ProductLayer], Contraction]
) -> OpenRows:
    """As ``open_rows``, with the function that makes the contraction of a layer, whose rows are rows of an image."""
    twin = layer.twin
    if twin is None or not (layer.is_by_weight and twin.is_by_weight) or tiling.lines > 1:
        raise RejectionError("the RHS is not a weight")
    one, other = map(contraction, (layer, twin))
    if _described(one) != _described(other) or layer.rewrite.packings != twin.rewrite.packings:
        raise RejectionError("more than the number of rows is known only when it runs")
    tiles = replace(one, nest=replace(one.nest, rows=_alone(1)), is_open=True)
    return OpenRows(tiles, fit.count(layer.rows, twin.rows))


def _described(contraction: Contraction) -> tuple[object, ...]:
    """All that code depends on, but for the number of rows."""
    nest = contraction.nest
    loops = nest.batches, nest.columns, nest.result, nest.epilogue.reads, nest.lanes, nest.channels, nest.tiling
    return *loops, contraction.depth, contraction.image, contraction.filters, contraction.memories


def _adjacent(windows: Axis, count: int) -> Axis:
    """So many adjacent places of windows of which one place is given."""
    return replace(windows, input=windows.input + (count - 1) * windows.stride, output=count)


def _alone(count: int) -> Axis:
    """So many rows that are each computed from one."""
    return Axis(count, count, 1, 1, 1, 0)
