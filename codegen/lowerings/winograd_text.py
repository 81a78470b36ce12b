"""MLIR of Winograd's transforms as dispatches: one workgroup takes a row of tiles, and computes on vectors of channels.

Sums are written out. The tiles of a row are ``n * n`` strided slices of the image, one per position in a tile, so each
operand of the sums is a matrix ``[tiles of the row, channels]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from sartor.codegen.ir.winograd import KERNEL, Matrix
from sartor.codegen.lowerings.dispatch_text import LOADS, STORE
from sartor.codegen.lowerings.lowering_config import root_config
from sartor.codegen.mlir.snippet import tensor_type


@dataclass(frozen=True)
class Tiling:
    """How an image is cut into tiles.

    Attributes:
        batch: number of images.
        rows: rows of tiles.
        columns: columns of tiles.
        output_tile: pixels of the result along a side of a tile.
        element: type of all numbers.
        lanes: channels computed at once.
    """

    batch: int
    rows: int
    columns: int
    output_tile: int
    element: str
    lanes: int

    @property
    def size(self) -> int:
        """Pixels of the image along a side of a tile."""
        return self.output_tile + KERNEL - 1

    @property
    def tiles(self) -> int:
        """Number of tiles."""
        return self.batch * self.rows * self.columns

    def image(self, channels: int) -> tuple[int, int, int, int]:
        """Shape of the image, NHWC, padded so that tiles fill it."""
        edge = KERNEL - 1
        return self.batch, self.rows * self.output_tile + edge, self.columns * self.output_tile + edge, channels

    def result(self, channels: int) -> tuple[int, int, int, int]:
        """Shape of the result, NHWC, in full tiles."""
        return self.batch, self.rows * self.output_tile, self.columns * self.output_tile, channels

    def transformed(self, channels: int) -> tuple[int, int, int]:
        """Shape of all tiles after a transform, ``[n * n, tiles, channels]``."""
        return self.size * self.size, self.tiles, channels


def image_transform(tiling: Tiling, matrix: Matrix, channels: int) -> str:
    """MLIR of a function from the padded image to its tiles, each transformed by B^T d B."""
    image = _Tensor(tiling, tiling.image(channels), step=tiling.output_tile, window=tiling.size)
    return _dispatch(tiling, matrix, image, _Tensor(tiling, tiling.transformed(channels), window=tiling.size))


def result_transform(tiling: Tiling, matrix: Matrix, channels: int) -> str:
    """MLIR of a function from transformed tiles to the result, A^T m A."""
    result = _Tensor(tiling, tiling.result(channels), step=tiling.output_tile, window=tiling.output_tile)
    return _dispatch(tiling, matrix, _Tensor(tiling, tiling.transformed(channels), window=tiling.size), result)


@dataclass(frozen=True)
class _Tensor:
    """Source or target of a transform: an image whose tiles are ``step`` pixels apart, or a sequence of tiles.

    Attributes:
        tiling: how the image is cut into tiles.
        shape: shape of the tensor.
        step: pixels from tile to tile; 0 for a sequence of tiles.
        window: positions along a side of a tile.
    """

    tiling: Tiling
    shape: tuple[int, ...]
    window: int
    step: int = 0

    @property
    def type(self) -> str:
        return tensor_type(self.shape, self.tiling.element)

    @property
    def slice(self) -> str:
        """Type of one position of all tiles of a row."""
        return tensor_type((self.tiling.columns, self.shape[-1]), self.tiling.element)

    def part(self, row: int, column: int) -> str:
        """Offsets, sizes and strides of one position."""
        channels, columns = self.shape[-1], self.tiling.columns
        if not self.step:
            index = row * self.window + column
            return f"offsets = [{index}, %first, 0], sizes = [1, {columns}, {channels}], strides = [1, 1, 1]"
        sizes, strides = [1, 1, columns, channels], [1, 1, self.step, 1]
        return f"offsets = [%image, %row{row}, {column}, 0], sizes = {sizes}, strides = {strides}"

    def indices(self) -> list[str]:
        """Lines that compute the offsets of the row of tiles ``%id``."""
        if not self.step:
            return [f"%first = affine.apply affine_map<(d0) -> (d0 * {self.tiling.columns})>(%id)"]
        rows = self.tiling.rows
        lines = [f"%image = affine.apply affine_map<(d0) -> (d0 floordiv {rows})>(%id)"]
        return lines + [
            f"%row{row} = affine.apply affine_map<(d0) -> ((d0 mod {rows}) * {self.step} + {row})>(%id)"
            for row in range(self.window)
        ]

    def positions(self) -> list[tuple[int, int]]:
        return [(row, column) for row in range(self.window) for column in range(self.window)]


def _dispatch(tiling: Tiling, matrix: Matrix, source: _Tensor, target: _Tensor) -> str:
    reads = f"!iree_tensor_ext.dispatch.tensor<readonly:{source.type}>"
    writes = f"!iree_tensor_ext.dispatch.tensor<writeonly:{target.type}>"
    loads = [
        f"%in{row}_{column} = {LOADS} %source, {source.part(row, column)} : {reads} -> {source.slice}"
        for row, column in source.positions()
    ]
    stores = [
        f"{STORE} %out#{index}, %target, {target.part(row, column)} : {target.slice} -> {writes}"
        for index, (row, column) in enumerate(target.positions())
    ]
    return "\n".join(
        [
            f"util.func private @transform(%whole: {source.type}) -> {target.type} {{",
            f"%count = arith.constant {tiling.batch * tiling.rows} : index",
            f"%r = flow.dispatch.workgroups[%count](%whole) : ({source.type}) -> {target.type} =",
            f"(%source: {reads}, %target: {writes}) {{",
            "%id = flow.dispatch.workgroup.id[0] : index",
            *source.indices(),
            *target.indices(),
            *loads,
            *_sums(tiling, matrix, source, target),
            *stores,
            "flow.return",
            "} count(%n: index) -> (index, index, index) {",
            "%one = arith.constant 1 : index",
            "flow.return %n, %one, %one : index, index, index",
            "}",
            f"util.return %r : {target.type}",
            "}",
        ]
    )


def _sums(tiling: Tiling, matrix: Matrix, source: _Tensor, target: _Tensor) -> list[str]:
    """One elementwise op from all positions of the source to all of the target."""
    given, wanted = source.positions(), target.positions()
    results = ", ".join([target.slice] * len(wanted))
    arguments = [f"%d{row}_{column}: {tiling.element}" for row, column in given]
    arguments += [f"%o{index}: {tiling.element}" for index in range(len(wanted))]
    config = root_config((1, tiling.lanes), (), "DoubleTilingExpert")
    maps = ", ".join(["affine_map<(t, c) -> (t, c)>"] * (len(given) + len(wanted)))
    lines, sums = _two_dimensional(matrix, source.window, tiling.element)
    return [
        *_constants(matrix, tiling.element),
        f"%empty = tensor.empty() : {target.slice}",
        f"%out:{len(wanted)} = linalg.generic {{compilation_info = {config}, indexing_maps = [{maps}],",
        'iterator_types = ["parallel", "parallel"]}',
        f"ins({', '.join(f'%in{row}_{column}' for row, column in given)} : {', '.join([source.slice] * len(given))})",
        f"outs({', '.join(['%empty'] * len(wanted))} : {results}) {{",
        f"^bb0({', '.join(arguments)}):",
        *lines,
        f"linalg.yield {', '.join(sums)} : {', '.join([tiling.element] * len(wanted))}",
        f"}} -> ({results})",
    ]


def _two_dimensional(matrix: Matrix, window: int, element: str) -> tuple[list[str], list[str]]:
    """Lines that compute M d M^T from scalars ``%d<row>_<column>``, and the names of its elements."""
    lines: list[str] = []
    half = [
        [_combine(row, [f"%d{index}_{column}" for index in range(window)], element, lines) for column in range(window)]
        for row in matrix
    ]
    return lines, [_combine(column, row, element, lines) for row in half for column in matrix]


def _combine(factors: Sequence[Fraction], names: Sequence[str], element: str, lines: list[str]) -> str:
    """The name of a sum of products; appends the lines that compute it."""
    total = ""
    for factor, name in zip(factors, names, strict=True):
        if factor == 0 or (not total and factor == 1):
            total = total or (name if factor else "")
            continue
        lines.append(f"%s{len(lines)} = {_term(factor, name, total)} : {element}")
        total = f"%s{len(lines) - 1}"
    return total


def _term(factor: Fraction, name: str, total: str) -> str:
    if not total:
        return f"arith.negf {name}" if factor == -1 else f"arith.mulf {name}, {_constant(factor)}"
    if abs(factor) == 1:
        return f"arith.{'addf' if factor > 0 else 'subf'} {total}, {name}"
    return f"math.fma {name}, {_constant(factor)}, {total}"


def _constants(matrix: Matrix, element: str) -> list[str]:
    factors = sorted({factor for row in matrix for factor in row if factor not in (-1, 0, 1)})
    return [f"{_constant(factor)} = arith.constant {float(factor):e} : {element}" for factor in factors]


def _constant(factor: Fraction) -> str:
    sign = "minus" if factor < 0 else "plus"
    return f"%{sign}{abs(factor.numerator)}_{factor.denominator}"
