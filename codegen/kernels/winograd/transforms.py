"""The two transforms of Winograd's method, on one vector of channels at a time.

Tiles at the edges of the image have code of their own, which checks for each pixel whether it is inside.
"""

from __future__ import annotations

from collections.abc import Sequence

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Condition, Index
from sartor.codegen.kernels.loops.access import vector_stride
from sartor.codegen.kernels.loops.epilogue import TileOrigin, TileVector
from sartor.codegen.kernels.winograd.geometry import WinogradConvolution
from sartor.codegen.kernels.winograd.matrix import transform
from sartor.codegen.kernels.winograd.workgroup_code import WorkgroupCode
from sartor.codegen.mlir.iree_compiler import ir

Grid = list[list[ir.Value]]


class Encoder(WorkgroupCode):
    """Emits B^T d B of a tile of the image."""

    def __init__(self, of: WinogradConvolution, asm: Assembler, memories: Sequence[ir.Value], start: Index) -> None:
        super().__init__(of, asm, memories, start)
        self._image = memories[of.memories[0]]
        self._rows, self._columns = (transforms.image for transforms in of.transforms)

    def write(self, batch: Index, tile: Index, number: Index) -> None:
        """Emit the encoding of all channels of a tile.

        Args:
            batch: index of the image.
            tile: number of the tile in the image, row by row.
            number: number of the tile in the block.
        """
        self._encode(batch, tile, self._asm.add(self._start, self._asm.mul(number, self._of.row)))

    def _encode(self, batch: Index, tile: Index, target: Index) -> None:
        of, asm = self._of, self._asm
        row, column = asm.divide(tile, of.across)
        top = asm.add(asm.mul(row, of.tiling.height), -of.rows.padding)
        left = asm.add(asm.mul(column, of.tiling.width), -of.columns.padding)
        image = asm.add(asm.mul(batch, of.image.batch), asm.mul(top, of.image.row), asm.mul(left, of.image.column))
        inside = asm.all_of(
            *(
                asm.within(start, axis.input - size + 1)
                for start, axis, size in ((top, of.rows, of.height), (left, of.columns, of.width))
            )
        )
        asm.branch(
            inside,
            lambda: self._channels(image, target, None),
            lambda: self._channels(image, target, self._present(top, left)),
        )

    def _present(self, top: Index, left: Index) -> list[list[Condition]]:
        """Whether each pixel of the tile lies on the image."""
        of, asm = self._of, self._asm
        rows = [asm.within(asm.add(top, index), of.rows.input) for index in range(of.height)]
        columns = [asm.within(asm.add(left, index), of.columns.input) for index in range(of.width)]
        return [[asm.all_of(row, column) for column in columns] for row in rows]

    @property
    def _lanes(self) -> int:
        """Channels of a vector."""
        return self._of.lanes

    @property
    def _step(self) -> int:
        """Elements of the workspace that a vector takes."""
        return self._of.lanes

    @property
    def _point(self) -> int:
        """Elements of the workspace from the numbers of one point to those of the next."""
        return self._of.tiling.block * self._of.row

    def _channels(self, image: Index, target: Index, present: list[list[Condition]] | None) -> None:
        of, asm, lanes = self._of, self._asm, self._lanes
        whole, rest = divmod(of.depth, lanes)
        stride = vector_stride(of.image, lanes)

        def every(index: Index, carried: list[ir.Value]) -> list[ir.Value]:
            start = asm.add(image, asm.mul(index, stride))
            self._vector(start, asm.add(target, asm.mul(index, self._step)), present, lanes)
            return carried

        asm.loop(0, whole, 1, [], every)
        if rest:
            self._vector(asm.add(image, whole * stride), asm.add(target, whole * self._step), present, rest)

    def _vector(self, image: Index, target: Index, present: list[list[Condition]] | None, count: int) -> None:
        of, asm = self._of, self._asm
        columns = []
        for column in range(of.width):
            pixels = [
                self._pixel(
                    asm.add(image, row * of.image.row + column * of.image.column),
                    count,
                    True if present is None else present[row][column],
                )
                for row in range(of.height)
            ]
            columns.append(transform(asm, self._rows, pixels))
        for row in range(of.height):
            for column, value in enumerate(
                transform(asm, self._columns, [vector_of_column[row] for vector_of_column in columns])
            ):
                point = row * of.width + column
                self._store(value, asm.add(target, point * self._point), point)

    def _pixel(self, offset: Index, count: int, present: Condition) -> ir.Value:
        return self._asm.load(self._image, offset, count, present)

    def _store(self, value: ir.Value, offset: Index, point: int) -> None:
        self._asm.store(value, self._space, offset, self._of.lanes)


class Decoder(WorkgroupCode):
    """Emits A^T M A of a tile of products, then the epilogue."""

    def __init__(self, of: WinogradConvolution, asm: Assembler, memories: Sequence[ir.Value], start: Index) -> None:
        super().__init__(of, asm, memories, start)
        self._rows, self._columns = (transforms.result for transforms in of.transforms)

    def write(self, batch: Index, tile: Index, panel: Index, number: Index) -> None:
        """Emit the decoding of a panel of channels of a tile.

        Args:
            batch: index of the image.
            tile: number of the tile in the image, row by row.
            panel: index of the panel.
            number: number of the tile in the block.
        """
        of, asm = self._of, self._asm
        row, column = asm.divide(tile, of.across)
        top, left = asm.mul(row, of.tiling.height), asm.mul(column, of.tiling.width)
        vector = asm.mul(panel, of.tiling.vectors)
        for index in range(of.tiling.vectors):
            decoded = self._decoded(panel, index, number)
            self._vector((batch, top, left), asm.add(vector, index), decoded)

    def _vector(self, at: tuple[Index, Index, Index], vector: Index, grid: Grid) -> None:
        """Store a vector of channels, which the last one fills in part."""
        of, asm = self._of, self._asm
        whole, rest = divmod(of.channels, of.lanes)
        always = of.grid.full == of.grid.panels
        asm.when(always or asm.within(vector, whole), lambda: self._pixels(at, vector, grid, of.lanes))
        if rest:
            asm.when(asm.equal(vector, whole), lambda: self._pixels(at, vector, grid, rest))

    def _decoded(self, panel: Index, vector: int, number: Index) -> Grid:
        of, asm = self._of, self._asm
        columns = []
        for column in range(of.width):
            points = [row * of.width + column for row in range(of.height)]
            products = [self._product((panel, vector), number, point) for point in points]
            columns.append(transform(asm, self._rows, products))
        return [
            transform(asm, self._columns, [vector_of_column[row] for vector_of_column in columns])
            for row in range(of.tiling.height)
        ]

    def _product(self, filters: tuple[Index, int], number: Index, point: int) -> ir.Value:
        """Load a product of a tile of the block and a vector of a panel."""
        of, asm = self._of, self._asm
        row = asm.add(asm.mul(number, of.panel * of.float_size), filters[1] * of.lanes * of.float_size)
        return asm.load_floats(self._memories[-1], asm.add(self._start, row, of.encoded + point * of.product))

    def _pixels(self, at: tuple[Index, Index, Index], vector: Index, grid: Grid, count: int) -> None:
        of, asm, tiling = self._of, self._asm, self._of.tiling
        _, top, left = at
        inside = asm.all_of(
            asm.within(top, of.rows.output - tiling.height + 1), asm.within(left, of.columns.output - tiling.width + 1)
        )
        asm.branch(
            inside,
            lambda: self._every_pixel(at, vector, grid, count),
            lambda: self._present_pixels(at, vector, grid, count),
        )

    def _every_pixel(self, at: tuple[Index, Index, Index], vector: Index, grid: Grid, count: int) -> None:
        batch, top, left = at
        for row, values in enumerate(grid):
            origin = TileOrigin(batch, self._asm.add(top, row), left, vector)
            for column, value in enumerate(values):
                self._store(origin, TileVector(0, column, 0, count), value)

    def _present_pixels(self, at: tuple[Index, Index, Index], vector: Index, grid: Grid, count: int) -> None:
        for row, values in enumerate(grid):
            for column, value in enumerate(values):
                self._if_present(at, vector, (row, column, count), value)

    def _if_present(
        self, at: tuple[Index, Index, Index], vector: Index, tile_vector: tuple[int, int, int], value: ir.Value
    ) -> None:
        of, asm = self._of, self._asm
        (batch, top, left), (row, column, count) = at, tile_vector
        line = asm.add(top, row)
        there = asm.all_of(asm.within(line, of.rows.output), asm.within(asm.add(left, column), of.columns.output))
        asm.when(
            there, lambda: self._store(TileOrigin(batch, line, left, vector), TileVector(0, column, 0, count), value)
        )

    def _store(self, origin: TileOrigin, tile_vector: TileVector, value: ir.Value) -> None:
        of, asm = self._of, self._asm
        total = self._total(of.epilogue.start(asm, self._memories, origin, tile_vector), value)
        result = of.epilogue.finish(asm, self._memories, origin, tile_vector, total)
        asm.store(
            result, self._memories[of.result.memory], origin.offset(asm, of.result, tile_vector), tile_vector.channels
        )

    def _total(self, start: ir.Value, value: ir.Value) -> ir.Value:
        return self._asm.sum_of(start, value)
