"""Convolutions as matrix products, where the patch under each output pixel is a row (Chellapilla et al., 2006)."""

from __future__ import annotations

from sartor.codegen.analysis.convolution import Convolution, convolution_of
from sartor.codegen.analysis.matmul import flatten
from sartor.codegen.ir.layer import LayerKind, Task
from sartor.codegen.ir.layouts import CHANNELS_LAST
from sartor.codegen.ir.packing import Reshape
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.rewriting.rewrite import Rewrite
from sartor.codegen.mlir.snippet import inline, tensor_type


def patches_rewrite(task: Task) -> Rewrite | Rejected:
    """The flattened rewrite of a convolution as a matrix product; Rejected with the reason if that is not possible.

    A 1x1 filter needs no patches.
    """
    convolution = convolution_of(task) if task.kind is LayerKind.CONVOLUTION else None
    if convolution is None:
        return Rejected("not a two-dimensional convolution without groups")
    rewrite = Rewrite.images(task, CHANNELS_LAST)
    if isinstance(rewrite, Rejected):
        return rewrite
    try:
        if not convolution.is_product:
            gather_patches(rewrite, convolution)
        flatten(rewrite)
    except RejectionError as error:
        return Rejected(error.reason)
    return rewrite


def gather_patches(rewrite: Rewrite, convolution: Convolution) -> None:
    """Replace the NHWC convolution at a layer's root by a gather of patches and a matrix product.

    Raises:
        RejectionError: if the filter is not a weight.
    """
    with rewrite.module.context as context, ir.Location.unknown(context):
        root = rewrite.root
        index = rewrite.weight_index(root.operands[1])
        if index is None:
            raise RejectionError("the filter is not a weight")
        channels, inner, *kernel = convolution.filter.shape
        flat = (kernel[0] * kernel[1] * inner, channels)
        rewrite.pack(index, (Reshape(flat),), tensor_type(flat, convolution.filter.dtype))
        point = ir.InsertionPoint(root)
        matrix, start = inline(_gather(convolution), [root.operands[0], root.operands[2]], point)
        product = _product(root, matrix, start)
        (result,) = inline(_spread(convolution), [product], point)
        root.results[0].replace_all_uses_with(result)
        root.erase()


def _product(root: ir.Operation, matrix: ir.Value, start: ir.Value) -> ir.Value:
    """A matrix product with the root's region."""
    clone = root.clone(ip=ir.InsertionPoint(root))
    clone.operands[0], clone.operands[2] = matrix, start
    clone.results[0].set_type(start.type)
    for name, text in (("indexing_maps", _PRODUCT_MAPS), ("iterator_types", _PRODUCT_LOOPS)):
        clone.attributes[name] = ir.Attribute.parse(text)
    return clone.results[0]


_PRODUCT_MAPS = "[affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>]"
_PRODUCT_LOOPS = (
    "[" + ", ".join(f"#linalg.iterator_type<{kind}>" for kind in ("parallel", "parallel", "reduction")) + "]"
)


def _gather(convolution: Convolution) -> str:
    """MLIR of a function from image and initial value to patches and initial value, both as matrices."""
    element = convolution.image.dtype
    batch, inner, height, width = convolution.image.shape
    kernel = convolution.filter.shape[2:]
    _, _, rows, columns = convolution.result.shape
    (down, right), (far_down, far_right) = convolution.strides, convolution.dilations
    image = tensor_type((batch, height, width, inner), element)
    patches = tensor_type((batch, rows, columns, *kernel, inner), element)
    matrix = tensor_type((batch * rows * columns, kernel[0] * kernel[1] * inner), element)
    result, flat = _results(convolution)
    loops = "n, h, w, y, x, c"
    source = f"n, h * {down} + y * {far_down}, w * {right} + x * {far_right}, c"
    return f"""util.func private @gather(%image: {image}, %initial: {result}) -> ({matrix}, {flat}) {{
  %room = tensor.empty() : {patches}
  %patches = linalg.generic {{
      indexing_maps = [affine_map<({loops}) -> ({source})>, affine_map<({loops}) -> ({loops})>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "parallel"]}}
      ins(%image : {image}) outs(%room : {patches}) {{
  ^bb0(%pixel: {element}, %out: {element}):
    linalg.yield %pixel : {element}
  }} -> {patches}
  %matrix = tensor.collapse_shape %patches [[0, 1, 2], [3, 4, 5]] : {patches} into {matrix}
  %start = tensor.collapse_shape %initial [[0, 1, 2], [3]] : {result} into {flat}
  util.return %matrix, %start : {matrix}, {flat}
}}"""


def _spread(convolution: Convolution) -> str:
    """MLIR of a function that reshapes the product to an image."""
    batch, channels, rows, columns = convolution.result.shape
    result, flat = _results(convolution)
    return f"""util.func private @spread(%product: {flat}) -> {result} {{
  %result = tensor.expand_shape %product [[0, 1, 2], [3]] output_shape [{batch}, {rows}, {columns}, {channels}]
      : {flat} into {result}
  util.return %result : {result}
}}"""


def _results(convolution: Convolution) -> tuple[str, str]:
    """Type of the result as an image in NHWC, and as a matrix."""
    batch, channels, rows, columns = convolution.result.shape
    element = convolution.result.dtype
    image = tensor_type((batch, rows, columns, channels), element)
    return image, tensor_type((batch * rows * columns, channels), element)
