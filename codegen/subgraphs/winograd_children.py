"""A convolution as three layers by Winograd's method: tiles are encoded, multiplied by encoded filters, and decoded.

The method is that of Lavin and Gray (2016, section 4.1), and this is SoftNeuro's childnet of it (section III-D). The
product in the middle is a batch of matrix products, which any kernel for those may compute; filters are encoded at
compile time. Numbers between the children pass through memory.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np

from sartor.codegen.ir.layer import LayerKind, Task, TensorType
from sartor.codegen.ir.winograd import Matrix, Transforms, transform_filter, transforms
from sartor.codegen.subgraphs.fusion import follow, task_of
from sartor.codegen.subgraphs.grouped import Sliding

_SEED = 0
_TRIED_TILES, _TRIED_CHANNELS = 64, 64


@dataclass(frozen=True)
class TiledConvolution:
    """A convolution of stride 1 in one group, cut into tiles.

    Attributes:
        sliding: the convolution.
        tile: pixels of the result in a tile along H and W.
    """

    sliding: Sliding
    tile: tuple[int, int]

    @property
    def kernel(self) -> tuple[int, int]:
        """Taps along H and W."""
        height, width = self.sliding.filter.shape[-2:]
        return height, width

    @property
    def rows(self) -> Transforms:
        """The matrices along H."""
        return transforms(self.tile[0], self.kernel[0])

    @property
    def columns(self) -> Transforms:
        """The matrices along W."""
        return transforms(self.tile[1], self.kernel[1])

    @property
    def points(self) -> tuple[int, int]:
        """Pixels of the image under a tile, along H and W."""
        return len(self.rows.image), len(self.columns.image)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of tiles."""
        height, width = self.sliding.result.shape[2:]
        return -(-height // self.tile[0]), -(-width // self.tile[1])

    @property
    def padded(self) -> TensorType:
        """Type of the image with zeros around it, so that tiles fill it."""
        batch, channels, *_ = self.sliding.image.shape
        (rows, columns), (height, width) = self.grid, self.kernel
        shape = (batch, channels, rows * self.tile[0] + height - 1, columns * self.tile[1] + width - 1)
        return replace(self.sliding.image, shape=shape)

    def encoded(self, channels: int) -> TensorType:
        """Type of tiles of numbers, ``[points, tiles, channels]``."""
        (high, wide), (rows, columns) = self.points, self.grid
        batch = self.sliding.image.shape[0]
        return replace(self.sliding.image, shape=(high * wide, batch * rows * columns, channels))

    def spread(self, channels: int) -> TensorType:
        """The same with all dimensions: points along H and W, image, row and column of tiles, channels."""
        return replace(self.sliding.image, shape=(*self.points, self.sliding.image.shape[0], *self.grid, channels))


def encode_task(tiled: TiledConvolution) -> Task:
    """A task from the image to its encoded tiles, B^T d B."""
    image, padded, element = tiled.sliding.image, tiled.padded, tiled.sliding.image.dtype
    batch, channels, _, width = padded.shape
    half = replace(image, shape=(tiled.points[0], batch, tiled.grid[0], channels, width))
    spread, result = tiled.spread(channels), tiled.encoded(channels)
    down, right = tiled.tile[0], tiled.tile[1]
    text = f"""util.func public @layer(%arg0: {image}) -> {result} {{
  %zero = arith.constant 0.0 : {element}
{_padding(tiled)}
{_transform("high", tiled.rows.image, half, ("%padded", padded), f"n, c, h * {down} + k, w", "p, n, h, c, w")}
{_transform("wide", tiled.columns.image, spread, ("%high", half), f"q, n, h, c, w * {right} + k", "q, p, n, h, w, c")}
  %result = tensor.collapse_shape %wide [[0, 1], [2, 3, 4], [5]] : {spread} into {result}
  util.return %result : {result}
}}"""
    return task_of(LayerKind.TOLERANT, text, (image,), (), (result,))


def product_task(tiled: TiledConvolution) -> Task:
    """A task that multiplies encoded tiles by encoded filters, ``[points, input channels, output channels]``."""
    _, after, before, *_ = tiled.sliding.filter.shape
    tiles, result = tiled.encoded(before), tiled.encoded(after)
    filters = replace(result, shape=(tiles.shape[0], before, after))
    text = f"""util.func public @layer(%tiles: {tiles}, %filters: {filters}) -> {result} {{
  %zero = arith.constant 0.0 : {result.dtype}
  %room = tensor.empty() : {result}
  %start = linalg.fill ins(%zero : {result.dtype}) outs(%room : {result}) -> {result}
  %result = linalg.batch_matmul ins(%tiles, %filters : {tiles}, {filters}) outs(%start : {result}) -> {result}
  util.return %result : {result}
}}"""
    return task_of(LayerKind.CONTRACTION, text, (tiles,), (filters,), (result,))


def decode_task(tiled: TiledConvolution) -> Task:
    """A task from products to the layer's result, A^T m A; its weights are the layer's bias and those of the tail."""
    sliding, element = tiled.sliding, tiled.sliding.image.dtype
    batch, channels, *pixels = sliding.result.shape
    products, spread = tiled.encoded(channels), tiled.spread(channels)
    (rows, columns), (down, right) = tiled.grid, tiled.tile
    half = replace(spread, shape=(down, tiled.points[1], batch, rows, columns, channels))
    full = replace(spread, shape=(batch, channels, rows, down, columns, right))
    whole = replace(spread, shape=(batch, channels, rows * down, columns * right))
    bias = None if sliding.bias is None else replace(sliding.result, shape=(channels,))
    arguments = f"%products: {products}" + ("" if bias is None else f", %bias: {bias}")
    text = f"""util.func public @layer({arguments}) -> {sliding.result} {{
  %zero = arith.constant 0.0 : {element}
  %spread = tensor.expand_shape %products [[0, 1], [2, 3, 4], [5]] output_shape {list(spread.shape)}
      : {products} into {spread}
{_transform("high", tiled.rows.result, half, ("%spread", spread), "k, q, n, h, w, c", "p, q, n, h, w, c")}
{_transform("wide", tiled.columns.result, full, ("%high", half), "q, k, n, h, w, c", "n, c, h, q, w, p")}
  %whole = tensor.collapse_shape %wide [[0], [1], [2, 3], [4, 5]] : {full} into {whole}
  %cut = tensor.extract_slice %whole[0, 0, 0, 0] {[batch, channels, *pixels]} [1, 1, 1, 1] : {whole} to {sliding.result}
{_added(sliding.result, bias)}
  util.return %result : {sliding.result}
}}"""
    core = task_of(LayerKind.TOLERANT, text, (products,), () if bias is None else (bias,), (sliding.result,))
    return core if sliding.tail is None else follow(core, sliding.tail)


def encoded_filters(tiled: TiledConvolution, filters: np.ndarray) -> np.ndarray:
    """The weight of the product, of filters ``[1, OC, IC, KH, KW]`` or without groups."""
    _, after, before, *kernel = tiled.sliding.filter.shape
    encoded = transform_filter(filters.reshape(after, before, *kernel), tiled.tile)
    return encoded.astype(filters.dtype).reshape(-1, before, after)


def method_error(tiled: TiledConvolution) -> float:
    """Relative error of the method in f32, which comes from rounding encoded numbers; on random numbers."""
    return _method_error(tiled.tile, tiled.kernel)


@functools.lru_cache
def _method_error(tile: tuple[int, int], kernel: tuple[int, int]) -> float:
    rng = np.random.default_rng(_SEED)
    sides = transforms(tile[0], kernel[0]), transforms(tile[1], kernel[1])
    image = rng.standard_normal((_TRIED_TILES, _TRIED_CHANNELS, *(len(side.image) for side in sides)))
    filters = rng.standard_normal((1, _TRIED_CHANNELS, *kernel))
    encoded = transform_filter(filters, tile)[..., 0]
    arrays = [_by_method(image.astype(kind), encoded.astype(kind), sides, kind) for kind in (np.float32, np.float64)]
    return float(np.abs(arrays[0] - arrays[1]).max() / np.abs(arrays[1]).max())


def _by_method(
    image: np.ndarray, encoded: np.ndarray, sides: tuple[Transforms, Transforms], kind: type[np.floating]
) -> np.ndarray:
    """Tiles of the result, all computed in one type."""
    (down, right), (high, wide) = (
        [np.array(getattr(side, name), dtype=kind) for side in sides] for name in ("image", "result")
    )
    tiles = np.einsum("pi,qj,tcij->pqtc", down, right, image, dtype=kind)
    sums = np.einsum("pqtc,pqc->pqt", tiles, encoded, dtype=kind)
    result: np.ndarray = np.einsum("yp,xq,pqt->tyx", high, wide, sums, dtype=kind)
    return result


def _padding(tiled: TiledConvolution) -> str:
    image, padded = tiled.sliding.image, tiled.padded
    (above, _), (left, _) = tiled.sliding.pads
    below, right = (padded.shape[axis] - image.shape[axis] - low for axis, low in ((2, above), (3, left)))
    return f"""  %padded = tensor.pad %arg0 low[0, 0, {above}, {left}] high[0, 0, {below}, {right}] {{
  ^bb0(%n: index, %c: index, %h: index, %w: index):
    tensor.yield %zero : {image.dtype}
  }} : {image} to {padded}"""


def _transform(
    name: str, matrix: Matrix, result: TensorType, source: tuple[str, TensorType], read: str, written: str
) -> str:
    """MLIR of a sum over ``k`` along one side of tiles: row ``p`` of a matrix times what is read; ``q`` is that of the
    other side."""
    value, given = source
    element, rows, columns = result.dtype, len(matrix), len(matrix[0])
    loops = ", ".join(dict.fromkeys([*written.split(", "), "k"]))
    kinds = ", ".join(['"parallel"'] * len(result.shape) + ['"reduction"'])
    numbers = ", ".join("[" + ", ".join(f"{float(fraction):.10f}" for fraction in row) + "]" for row in matrix)
    table = f"tensor<{rows}x{columns}x{element}>"
    return f"""  %{name}_table = arith.constant dense<[{numbers}]> : {table}
  %{name}_room = tensor.empty() : {result}
  %{name}_start = linalg.fill ins(%zero : {element}) outs(%{name}_room : {result}) -> {result}
  %{name} = linalg.generic {{
      indexing_maps = [affine_map<({loops}) -> ({read})>, affine_map<({loops}) -> (p, k)>,
                       affine_map<({loops}) -> ({written})>],
      iterator_types = [{kinds}]}}
      ins({value}, %{name}_table : {given}, {table}) outs(%{name}_start : {result}) {{
  ^bb0(%{name}_in: {element}, %{name}_factor: {element}, %{name}_sum: {element}):
    %{name}_product = arith.mulf %{name}_in, %{name}_factor : {element}
    %{name}_next = arith.addf %{name}_sum, %{name}_product : {element}
    linalg.yield %{name}_next : {element}
  }} -> {result}"""


def _added(result: TensorType, bias: TensorType | None) -> str:
    """MLIR that defines ``%result``: ``%cut``, with the bias of each channel if there is one."""
    room = f"  %room = tensor.empty() : {result}"
    maps = "affine_map<(n, c, h, w) -> (n, c, h, w)>"
    operands, types, read = "%cut, %bias", f"{result}, {bias}", f"{maps}, affine_map<(n, c, h, w) -> (c)>"
    if bias is None:
        return f"""{room}
  %result = linalg.copy ins(%cut : {result}) outs(%room : {result}) -> {result}"""
    return f"""{room}
  %result = linalg.generic {{indexing_maps = [{read}, {maps}],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}}
      ins({operands} : {types}) outs(%room : {result}) {{
  ^bb0(%sum: {result.dtype}, %more: {result.dtype}, %out: {result.dtype}):
    %both = arith.addf %sum, %more : {result.dtype}
    linalg.yield %both : {result.dtype}
  }} -> {result}"""
