"""Rewrite a 3x3 convolution by Winograd's method, as matrix products between two transforms."""

from __future__ import annotations

from sartor.codegen.analysis.convolution import Convolution
from sartor.codegen.ir.packing import Packing, Reshape, WinogradFilter
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.winograd import transforms
from sartor.codegen.lowerings.winograd_text import Tiling, image_transform, result_transform
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.rewriting.initial import initial_of
from sartor.codegen.mlir.rewriting.rewrite import Rewrite
from sartor.codegen.mlir.snippet import inline, tensor_type


def tiling_of(convolution: Convolution, output_tile: int, lanes: int) -> Tiling:
    """How a convolution's image is cut into tiles."""
    batch, _, height, width = convolution.result.shape
    rows, columns = -(-height // output_tile), -(-width // output_tile)
    return Tiling(batch, rows, columns, output_tile, convolution.result.dtype, lanes)


def use_own_transforms(rewrite: Rewrite, convolution: Convolution, tiling: Tiling) -> None:
    """Replace an NHWC convolution by transforms of our own and a batch of products ``[tiles, IC] x [IC, OC]``.

    The batched product is the new root; the initial value of the old root is added at the end.

    Raises:
        RejectionError: if the filter is not a weight.
    """
    channels, inner = convolution.filter.shape[:2]
    matrices = transforms(tiling.output_tile)
    with rewrite.module.context as context, ir.Location.unknown(context):
        root = rewrite.root
        point = ir.InsertionPoint(root)
        weights = _transform_weight(rewrite, root, convolution, tiling)
        (image,) = inline(_pad(convolution, tiling), [root.operands[0]], point)
        (tiles,) = inline(image_transform(tiling, matrices.image, inner), [image], point)
        (products,) = inline(_products(tiling, inner, channels), [tiles, weights], point)
        (result,) = inline(result_transform(tiling, matrices.result, channels), [products], point)
        _finish(root, result, convolution, tiling)


def use_iree_ops(rewrite: Rewrite, convolution: Convolution, tiling: Tiling) -> None:
    """Like ``use_own_transforms``, with IREE's Winograd ops.

    Their code for Vulkan does not compile if tiles do not fill the image.

    Raises:
        RejectionError: if the filter is not a weight.
    """
    with rewrite.module.context as context, ir.Location.unknown(context):
        root = rewrite.root
        point = ir.InsertionPoint(root)
        weights = _transform_weight(rewrite, root, convolution, tiling)
        (image,) = inline(_pad(convolution, tiling), [root.operands[0]], point)
        (result,) = inline(_iree_ops(convolution, tiling), [image, weights], point)
        _finish(root, result, convolution, tiling)


def _transform_weight(rewrite: Rewrite, root: ir.Operation, convolution: Convolution, tiling: Tiling) -> ir.Value:
    index = rewrite.weight_index(root.operands[1])
    if index is None:
        raise RejectionError("the filter is not a weight")
    channels, inner = convolution.filter.shape[:2]
    shape = (tiling.size**2, inner, channels)
    rewrite.packings[index] = Packing()
    rewrite.pack(
        index,
        (WinogradFilter((tiling.output_tile, tiling.output_tile)), Reshape(shape)),
        tensor_type(shape, tiling.element),
    )
    return rewrite.weights[index]


def _finish(root: ir.Operation, result: ir.Value, convolution: Convolution, tiling: Tiling) -> None:
    """Cut off the padding of the last tiles, and add the root's initial value."""
    (cut,) = inline(_cut(convolution, tiling), [result], ir.InsertionPoint(root))
    root.results[0].replace_all_uses_with(initial_of(root).added_to(cut, root))
    root.erase()


def _pad(convolution: Convolution, tiling: Tiling) -> str:
    batch, inner, height, width = convolution.image.shape
    wanted = tiling.image(inner)
    before = tensor_type((batch, height, width, inner), tiling.element)
    after = tensor_type(wanted, tiling.element)
    high = [0, wanted[1] - height, wanted[2] - width, 0]
    if not any(high):
        return f"util.func private @pad(%image: {before}) -> {before} {{ util.return %image : {before} }}"
    return f"""util.func private @pad(%image: {before}) -> {after} {{
  %zero = arith.constant 0.0 : {tiling.element}
  %padded = tensor.pad %image low[0, 0, 0, 0] high{high} {{
  ^bb0(%n: index, %h: index, %w: index, %c: index):
    tensor.yield %zero : {tiling.element}
  }} : {before} to {after}
  util.return %padded : {after}
}}"""


def _cut(convolution: Convolution, tiling: Tiling) -> str:
    batch, channels, height, width = convolution.result.shape
    before = tensor_type(tiling.result(channels), tiling.element)
    after = tensor_type((batch, height, width, channels), tiling.element)
    if before == after:
        return f"util.func private @cut(%whole: {before}) -> {before} {{ util.return %whole : {before} }}"
    return f"""util.func private @cut(%whole: {before}) -> {after} {{
  %cut = tensor.extract_slice %whole[0, 0, 0, 0] [{batch}, {height}, {width}, {channels}] [1, 1, 1, 1]
      : {before} to {after}
  util.return %cut : {after}
}}"""


def _products(tiling: Tiling, inner: int, channels: int) -> str:
    left = tensor_type(tiling.transformed(inner), tiling.element)
    right = tensor_type((tiling.size**2, inner, channels), tiling.element)
    result = tensor_type(tiling.transformed(channels), tiling.element)
    return f"""util.func private @products(%tiles: {left}, %weights: {right}) -> {result} {{
  %zero = arith.constant 0.0 : {tiling.element}
  %empty = tensor.empty() : {result}
  %start = linalg.generic {{
      indexing_maps = [affine_map<(b, m, n) -> ()>, affine_map<(b, m, n) -> (b, m, n)>],
      iterator_types = ["parallel", "parallel", "parallel"]}} ins(%zero : {tiling.element}) outs(%empty : {result}) {{
  ^bb0(%in: {tiling.element}, %out: {tiling.element}):
    linalg.yield %in : {tiling.element}
  }} -> {result}
  %sums = linalg.generic {{
      indexing_maps = [affine_map<(b, m, n, k) -> (b, m, k)>, affine_map<(b, m, n, k) -> (b, k, n)>,
                       affine_map<(b, m, n, k) -> (b, m, n)>],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]}}
      ins(%tiles, %weights : {left}, {right}) outs(%start : {result}) {{
  ^bb0(%a: {tiling.element}, %b: {tiling.element}, %sum: {tiling.element}):
    %ab = arith.mulf %a, %b : {tiling.element}
    %next = arith.addf %sum, %ab : {tiling.element}
    linalg.yield %next : {tiling.element}
  }} -> {result}
  util.return %sums : {result}
}}"""


def _iree_ops(convolution: Convolution, tiling: Tiling) -> str:
    """MLIR of a function from the padded image and the transformed filter to the result in full tiles."""
    element, size, squared = tiling.element, tiling.size, tiling.size**2
    channels, inner = convolution.filter.shape[:2]
    grid = (size, size, tiling.batch, tiling.rows, tiling.columns)
    image = tensor_type(tiling.image(inner), element)
    weights = tensor_type((squared, inner, channels), element)
    tiles, flat = tensor_type((*grid, inner), element), tensor_type(tiling.transformed(inner), element)
    products = tensor_type(tiling.transformed(channels), element)
    wide, whole = tensor_type((*grid, channels), element), tensor_type(tiling.result(channels), element)
    kind = f"output_tile_size({tiling.output_tile}) kernel_size(3) image_dimensions([1, 2])"
    return f"""util.func private @winograd(%image: {image}, %weights: {weights}) -> {whole} {{
  %zero = arith.constant 0.0 : {element}
  %room = tensor.empty() : {tiles}
  %tiles = iree_linalg_ext.winograd.input_transform {kind} ins(%image : {image}) outs(%room : {tiles}) -> {tiles}
  %flat = tensor.collapse_shape %tiles [[0, 1], [2, 3, 4], [5]] : {tiles} into {flat}
  %empty = tensor.empty() : {products}
  %start = linalg.fill ins(%zero : {element}) outs(%empty : {products}) -> {products}
  %sums = linalg.batch_matmul ins(%flat, %weights : {flat}, {weights}) outs(%start : {products}) -> {products}
  %wide = tensor.expand_shape %sums [[0, 1], [2, 3, 4], [5]] output_shape {[*grid, channels]} : {products} into {wide}
  %place = tensor.empty() : {whole}
  %whole = iree_linalg_ext.winograd.output_transform {kind} ins(%wide : {wide}) outs(%place : {whole}) -> {whole}
  util.return %whole : {whole}
}}"""
