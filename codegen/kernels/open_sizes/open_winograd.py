"""A convolution over images of any size by Winograd's minimal filtering (Lavin and Gray, 2016, section 4.1).

As for known sizes, a workgroup encodes a block of tiles of the image, multiplies them by the filters of each point, and
decodes the products, all in its part of a workspace that the second-level cache holds. Only the number of tiles, and
where images begin and end, are known when it runs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sartor.codegen.ir.sizes.dims import Count
from sartor.codegen.ir.winograd import Transforms, transforms
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Condition, Index
from sartor.codegen.kernels.isa.microkernel import Lhs, Prefetch, Rhs, multiply_add
from sartor.codegen.kernels.loops.access import Access
from sartor.codegen.kernels.loops.epilogue import Epilogue, TileOrigin, TileVector
from sartor.codegen.kernels.loops.nest import each_panel
from sartor.codegen.kernels.loops.panels import Panel, PanelGrid
from sartor.codegen.kernels.loops.partition import workgroup_range
from sartor.codegen.kernels.open_sizes.patches import Patches, Side
from sartor.codegen.kernels.winograd.geometry import WinogradTiling
from sartor.codegen.kernels.winograd.matrix import transform
from sartor.codegen.mlir.iree_compiler import ir

# Of more register tiles of a point, the hardware fetches filters in time.
_MOST_TILES = 8


@dataclass(frozen=True)
class OpenWinograd:
    """A kernel of a convolution of stride 1.

    Attributes:
        patches: the windows of the image ``[N, H, W, C]``.
        batch: N.
        channels: OC.
        buffers: positions of the image, and of filters ``[panel, n * n, C, panel size]``, among all buffers, of which
            the last is the workspace.
        wiring: the buffers of the epilogue.
        epilogue: the ops around the root, whose accesses take all places of a result for one row.
        result: how results are stored.
        lanes: elements of a vector.
        tiling: sizes of tiles; each workgroup computes all panels of its blocks.
        sharers: workgroups that share the panels where there is one block alone: as many as there are threads, since
            each of them encodes the block.
    """

    patches: Patches
    batch: Count
    channels: int
    buffers: tuple[int, int]
    wiring: tuple[int, ...]
    epilogue: Epilogue
    result: Access
    lanes: int
    tiling: WinogradTiling
    sharers: int = 1

    @property
    def grid(self) -> PanelGrid:
        """The panels of channels."""
        return PanelGrid(self.channels, self.lanes, self.tiling.vectors)

    @property
    def groups(self) -> tuple[int, int, int]:
        """Number of workgroups in each dimension; some may have nothing to do."""
        return self.tiling.groups, 1, 1

    @property
    def transforms(self) -> tuple[Transforms, Transforms]:
        """The transforms along H and W."""
        return (
            transforms(self.tiling.height, self.patches.rows.kernel),
            transforms(self.tiling.width, self.patches.columns.kernel),
        )

    @property
    def height(self) -> int:
        """n along H, pixels of the image in a column of a tile."""
        return self.tiling.height + self.patches.rows.kernel - 1

    @property
    def width(self) -> int:
        """n along W."""
        return self.tiling.width + self.patches.columns.kernel - 1

    @property
    def points(self) -> int:
        """Products of matrices."""
        return self.height * self.width

    @property
    def panel(self) -> int:
        """Channels of a panel of filters."""
        return self.tiling.vectors * self.lanes

    @property
    def row(self) -> int:
        """Elements of the workspace for an encoded tile and point: a vector more than needed, or rows of a power of two
        would all be in the same sets of the cache."""
        return (-(-self.patches.channels // self.lanes) + 1) * self.lanes

    @property
    def workspace(self) -> int:
        """Elements of the workspace of a workgroup: encoded tiles, then the products by one panel."""
        return self.points * self.tiling.block * (self.row + self.panel)

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""
        _Writer(self, asm, memories, asm.mul(group[0], self.workspace)).write(group[0])


@dataclass(frozen=True)
class _Tile:
    """A tile of the result, while its code is emitted.

    Attributes:
        batch: index of the image.
        top, left: its first row and column.
        number: its number in the block.
    """

    batch: Index
    top: Index
    left: Index
    number: Index


class _Panels(NamedTuple):
    """The panels of a workgroup.

    Attributes:
        range: the first one and the end.
        has_last: whether the last panel of all is among them.
    """

    range: tuple[Index, Index]
    has_last: Condition


class _Writer:
    def __init__(self, of: OpenWinograd, asm: Assembler, memories: Sequence[ir.Value], start: Index) -> None:
        self._of = of
        self._asm = asm
        self._start = start
        self._image, self._filters = (memories[buffer] for buffer in of.buffers)
        self._space = memories[-1]
        self._memories = [memories[index] for index in of.wiring]
        self._rows, self._columns = of.patches.rows, of.patches.columns
        self._across = asm.divide_up(asm.size(self._columns.output), of.tiling.width)
        self._down = asm.divide_up(asm.size(self._rows.output), of.tiling.height)
        self._line = asm.times(asm.size(self._columns.input), of.patches.channels)

    def write(self, group: Index) -> None:
        """Emit blocks of tiles, one after the other.

        Workgroups share whole blocks, as parts of blocks take longer, or the panels of the only one: each that computed
        a part of its tiles would read all filters, which are most of what a small image needs.
        """
        asm, of, block = self._asm, self._of, self._of.tiling.block
        tiles = asm.times(asm.size(of.batch), asm.times(self._down, self._across))
        blocks = workgroup_range(asm, asm.divide_up(tiles, block), of.tiling.groups, group)
        is_only = asm.less(tiles, block + 1)
        shared = asm.chosen(asm.less(group, of.sharers), tiles, 0)
        first = asm.chosen(is_only, 0, asm.mul(blocks[0], block))
        end = asm.chosen(is_only, shared, asm.minimum(tiles, asm.mul(blocks[1], block)))
        panels = self._panels(is_only, group)
        asm.repeat(first, end, block, lambda begin: self._block(begin, asm.minimum(end, asm.add(begin, block)), panels))

    def _panels(self, is_only: Condition, group: Index) -> _Panels:
        """The panels of a workgroup: equal parts of those of the only block, which no workgroup takes when it is done
        with another."""
        asm, (panels, sharers) = self._asm, (self._of.grid.panels, self._of.sharers)
        if sharers == 1:
            return _Panels((0, panels), True)
        first, end = (asm.divide(asm.mul(number, panels), sharers)[0] for number in (group, asm.add(group, 1)))
        chosen = asm.chosen(is_only, first, 0), asm.chosen(is_only, end, panels)
        return _Panels(chosen, asm.equal(chosen[1], panels))

    def _block(self, first: Index, end: Index, panels: _Panels) -> None:
        asm = self._asm
        asm.repeat(first, end, 1, lambda number: self._encode(self._tile(number, first)))

        def every(panel: Panel) -> None:
            self._multiply(panel, asm.sub(end, first))
            asm.repeat(first, end, 1, lambda number: self._decode(panel, self._tile(number, first)))

        each_panel(asm, self._of.grid, panels.range, panels.has_last, every)

    def _tile(self, number: Index, first: Index) -> _Tile:
        """A tile by its number among those of all images."""
        asm, tiling = self._asm, self._of.tiling
        line, column = asm.divide(number, self._across)
        batch, row = asm.divide(line, self._down)
        return _Tile(batch, asm.mul(row, tiling.height), asm.mul(column, tiling.width), asm.sub(number, first))

    def _encode(self, tile: _Tile) -> None:
        """Emit B^T d B of all channels of a tile."""
        of, asm, lanes = self._of, self._asm, self._of.lanes
        top, left = self._rows.start(asm, tile.top), self._columns.start(asm, tile.left)
        height = asm.add(asm.times(tile.batch, asm.size(self._rows.input)), top)
        image = asm.add(asm.times(height, self._line), asm.mul(left, of.patches.channels))
        target = asm.add(self._start, asm.mul(tile.number, of.row))
        whole, rest = divmod(of.patches.channels, lanes)

        def encoded(present: list[list[Condition]] | None) -> None:
            asm.repeat(0, whole, 1, lambda vector: self._vector(image, target, asm.mul(vector, lanes), lanes, present))
            if rest:
                self._vector(image, target, whole * lanes, rest, present)

        present = [[*self._hits(self._rows, top, of.height)], [*self._hits(self._columns, left, of.width)]]
        inside = asm.all_of(present[0][0], present[0][-1], present[1][0], present[1][-1])
        asm.branch(inside, lambda: encoded(None), lambda: encoded(present))

    def _hits(self, side: Side, start: Index, count: int) -> list[Condition]:
        """Whether each of some pixels lies on the image."""
        asm = self._asm
        pixels = [asm.add(start, index) for index in range(count)]
        return [asm.all_of(asm.less(-1, pixel), asm.less(pixel, asm.size(side.input))) for pixel in pixels]

    def _vector(
        self, image: Index, target: Index, channel: Index, count: int, present: list[list[Condition]] | None
    ) -> None:
        """Emit the encoding of a vector of channels."""
        of, asm = self._of, self._asm
        rows, columns = (side.image for side in of.transforms)
        lines = [asm.add(image, channel, asm.times(self._line, row)) for row in range(of.height)]

        def pixel(row: int, column: int) -> ir.Value:
            there = True if present is None else asm.all_of(present[0][row], present[1][column])
            return asm.load(self._image, asm.add(lines[row], column * of.patches.channels), count, there)

        encoded = [transform(asm, rows, [pixel(row, column) for row in range(of.height)]) for column in range(of.width)]
        into = asm.add(target, channel)
        for row in range(of.height):
            for column, value in enumerate(transform(asm, columns, [numbers[row] for numbers in encoded])):
                point = row * of.width + column
                asm.store(value, self._space, asm.add(into, point * of.tiling.block * of.row), of.lanes)

    def _multiply(self, panel: Panel, tiles: Index) -> None:
        """Emit the products of encoded tiles by a panel of filters, for each point."""
        of, asm, tiling = self._of, self._asm, self._of.tiling
        depth = of.patches.channels
        filters = asm.mul(panel.index, of.points * depth * of.panel)

        def point(index: Index) -> None:
            asm.repeat(0, tiles, tiling.columns, functools.partial(register_tile, index))

        def register_tile(index: Index, row: Index) -> None:
            lhs = asm.add(self._start, asm.mul(index, tiling.block * of.row), asm.mul(row, of.row))
            rhs = asm.add(filters, asm.mul(index, depth * of.panel))
            zero = asm.splat(ir.FloatAttr.get(ir.F32Type.get(), 0.0))
            totals = multiply_add(
                asm,
                Lhs(self._space, lhs, {column: column * of.row for column in range(tiling.columns)}),
                Rhs(
                    self._filters,
                    rhs,
                    of.panel,
                    [(place * of.lanes, of.lanes) for place in range(panel.vectors)],
                    self._prefetch(rhs, row),
                ),
                depth,
                tiling.unroll,
                [zero] * panel.vectors * tiling.columns,
            )
            products = self._product(index, row)
            for number, total in enumerate(totals):
                column, vector = divmod(number, panel.vectors)
                asm.store(total, self._space, asm.add(products, column * of.panel + vector * of.lanes), of.lanes)

        asm.repeat(0, of.points, 1, point)

    def _prefetch(self, filters: Index, row: Index) -> Prefetch | None:
        """The part of the next point's filters that a register tile fetches while it computes; None of many tiles."""
        of, asm, tiling = self._of, self._asm, self._of.tiling
        tiles = tiling.block // tiling.columns
        if tiles > _MOST_TILES:
            return None
        depth, share = of.patches.channels, -(-of.panel // tiles)
        number = asm.divide(row, tiling.columns)[0]
        return Prefetch(asm.add(filters, depth * of.panel, asm.mul(number, depth * share)), share)

    def _product(self, point: Index, tile: Index) -> Index:
        """Offset of what a tile of the block is multiplied to at a point."""
        of, asm = self._of, self._asm
        behind = of.points * of.tiling.block * of.row
        return asm.add(self._start, behind, asm.mul(point, of.tiling.block * of.panel), asm.mul(tile, of.panel))

    def _decode(self, panel: Panel, tile: _Tile) -> None:
        """Emit A^T M A of a panel of channels of a tile, and the epilogue."""
        of, asm = self._of, self._asm
        rows, columns = (side.result for side in of.transforms)
        inside = asm.all_of(
            asm.less(asm.add(tile.top, of.tiling.height - 1), asm.size(self._rows.output)),
            asm.less(asm.add(tile.left, of.tiling.width - 1), asm.size(self._columns.output)),
        )
        for vector in range(panel.vectors):
            decoded = []
            for column in range(of.width):
                points = [row * of.width + column for row in range(of.height)]
                offsets = [asm.add(self._product(point, tile.number), vector * of.lanes) for point in points]
                products = [asm.load(self._space, offset, of.lanes) for offset in offsets]
                decoded.append(transform(asm, rows, products))
            pixels = [transform(asm, columns, [numbers[row] for numbers in decoded]) for row in range(of.tiling.height)]
            store = self._storing(panel, vector, tile, pixels)
            asm.branch(inside, functools.partial(store, False), functools.partial(store, True))

    def _storing(self, panel: Panel, vector: int, tile: _Tile, pixels: list[list[ir.Value]]) -> Callable[[bool], None]:
        """What emits the stores of a tile; if asked so, of those pixels alone that the result has."""
        of, asm = self._of, self._asm
        count = panel.count(vector, of.lanes)

        def store_pixel(row: int, column: int) -> None:
            line = asm.add(asm.times(tile.batch, asm.size(self._rows.output)), tile.top, row)
            place = asm.add(asm.times(line, asm.size(self._columns.output)), tile.left)
            origin = TileOrigin(0, 0, place, asm.mul(panel.index, of.tiling.vectors))
            part = TileVector(0, column, vector, count)
            total = asm.sum_of(of.epilogue.start(asm, self._memories, origin, part), pixels[row][column])
            value = of.epilogue.finish(asm, self._memories, origin, part, total)
            asm.store(value, self._memories[of.result.memory], origin.offset(asm, of.result, part), count)

        def store(checks: bool) -> None:
            for row in range(of.tiling.height):
                for column in range(of.tiling.width):
                    there: Condition = True
                    if checks:
                        there = asm.all_of(
                            asm.less(asm.add(tile.top, row), asm.size(self._rows.output)),
                            asm.less(asm.add(tile.left, column), asm.size(self._columns.output)),
                        )
                    asm.when(there, functools.partial(store_pixel, row, column))

        return store
