"""A matrix product by a weight whose number of rows is known only when it runs.

Rows are cut into register tiles; the rows that are left are one of the smaller tiles that the code has for each number
of them. They are computed panel by panel like all others, so that filters are read once.

Workgroups that partition the rows of large products have nothing to do where rows are few: then they partition the
panels, which is known only when it runs, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from sartor.codegen.ir.packing import Storage
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.sizes.dims import Count
from sartor.codegen.ir.sizes.fit import Fit
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Condition, Index
from sartor.codegen.kernels.layers.product_layer import ProductLayer
from sartor.codegen.kernels.loops.nest import each_panel
from sartor.codegen.kernels.loops.panels import Panel
from sartor.codegen.kernels.loops.partition import workgroup_range
from sartor.codegen.kernels.loops.tiles import Axis
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.kernels.vector.contraction import Contraction
from sartor.codegen.kernels.vector.product import unjoined_contraction
from sartor.codegen.mlir.iree_compiler import ir


class _Share(NamedTuple):
    """What a workgroup computes.

    Attributes:
        tiles: the first whole tile and the end.
        has_rest: whether the rows behind whole tiles are computed.
        panels: the first panel and the end.
        has_last: whether the last panel is among them.
    """

    tiles: tuple[Index, Index]
    has_rest: Condition
    panels: tuple[Index, Index]
    has_last: Condition


@dataclass(frozen=True)
class OpenRows:
    """A product of any number of rows.

    Attributes:
        tiles: the contraction of whole register tiles, each of which is a row of an image.
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
        whole, rest = self.tiles_and_rest(asm)
        share = self._share(asm, whole, group)

        def panel(panel: Panel) -> None:
            self.write_tiles(asm, memories, share.tiles, panel)
            asm.when(share.has_rest, lambda: self.write_rest(asm, memories, (whole, rest), panel))

        each_panel(asm, self.tiles.nest.grid, share.panels, share.has_last, panel)

    def _share(self, asm: Assembler, whole: Index, group: tuple[Index, Index, Index]) -> _Share:
        """The share of a workgroup, given the number of whole tiles."""
        (row_groups, panel_groups, _), panels = self.groups, self.tiles.nest.grid.panels
        tiles = workgroup_range(asm, whole, row_groups, group[0])
        has_rest = asm.equal(group[0], row_groups - 1)
        if row_groups == 1 or panel_groups > 1 or panels == 1:
            own = workgroup_range(asm, panels, panel_groups, group[1])
            return _Share(tiles, has_rest, own, asm.equal(group[1], panel_groups - 1))
        # With fewer tiles than workgroups some of these would wait for the others.
        is_few = asm.less(whole, row_groups)
        first, end = workgroup_range(asm, panels, row_groups, group[0])
        return _Share(
            (asm.chosen(is_few, 0, tiles[0]), asm.chosen(is_few, whole, tiles[1])),
            asm.any_of(is_few, has_rest),
            (asm.chosen(is_few, first, 0), asm.chosen(is_few, end, panels)),
            asm.any_of(asm.less(row_groups - 1, whole), has_rest),
        )

    def tiles_and_rest(self, asm: Assembler) -> tuple[Index, Index]:
        """The number of whole tiles, and of the rows behind them."""
        return asm.divide(asm.size(self.rows), self.tiles.nest.tiling.columns)

    def write_tiles(
        self, asm: Assembler, memories: Sequence[ir.Value], tiles: tuple[Index, Index], panel: Panel, shift: Index = 0
    ) -> None:
        """Emit a panel of some whole tiles, given by the first and their end.

        Args:
            asm: emits the code.
            memories: all buffers.
            tiles: number of the first tile, and the end.
            panel: the panel.
            shift: how far from its usual place the LHS lies in its memory, in elements.
        """
        accumulate = self.tiles.shifted_accumulation(asm, memories, shift)
        self.tiles.nest.write_panel(asm, memories, tiles, panel, accumulate)

    def write_rest(
        self, asm: Assembler, memories: Sequence[ir.Value], rows: tuple[Index, Index], panel: Panel, shift: Index = 0
    ) -> None:
        """Emit a panel of the rows behind whole tiles, given the number of tiles and of these rows; the rest is as for
        ``write_tiles``."""
        whole, rest = rows
        for count in range(1, self.tiles.nest.tiling.columns):
            nest = replace(self.tiles.nest, rows=_alone(1), columns=_alone(count))
            tile = replace(self.tiles, nest=nest)
            accumulate = tile.shifted_accumulation(asm, memories, shift)
            asm.when(
                asm.equal(rest, count),
                lambda nest=nest, accumulate=accumulate: nest.write_panel(  # type: ignore[misc]
                    asm, memories, (whole, asm.add(whole, 1)), panel, accumulate
                ),
            )


def open_rows(layer: ProductLayer, fit: Fit, tiling: Tiling, weights: Storage | None) -> OpenRows:
    """The product of a layer of any number of rows.

    Args:
        layer: with its twin.
        fit: finds what the number of rows follows from.
        tiling: sizes of tiles.
        weights: how the RHS is stored for sums of f32; None for as it is.

    Raises:
        RejectionError: if the RHS is no weight, or more than the number of rows is known only when it runs.
    """
    twin = layer.twin
    if twin is None or not (layer.is_by_weight and twin.is_by_weight) or tiling.lines > 1:
        raise RejectionError("the RHS is not a weight")
    one, other = (unjoined_contraction(each, tiling, None, weights).joined(tiling.columns) for each in (layer, twin))
    if _described(one) != _described(other) or layer.rewrite.packings != twin.rewrite.packings:
        raise RejectionError("more than the number of rows is known only when it runs")
    tiles = replace(one, nest=replace(one.nest, rows=_alone(1)), is_open=True)
    return OpenRows(tiles, fit.count(layer.rows, twin.rows))


def _described(contraction: Contraction) -> tuple[object, ...]:
    """All that code depends on, but for the number of rows."""
    nest = contraction.nest
    loops = nest.batches, nest.columns, nest.result, nest.epilogue.reads, nest.lanes, nest.channels, nest.tiling
    return *loops, contraction.depth, contraction.image, contraction.filters, contraction.memories


def _alone(count: int) -> Axis:
    """So many rows that are each computed from one."""
    return Axis(count, count, 1, 1, 1, 0)
