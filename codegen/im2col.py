"""Convolutions as matrix products: the patch under each output pixel becomes a row (Chellapilla et al., 2006)."""

from __future__ import annotations

from sartor.codegen.convolution import Convolution, convolution_of
from sartor.codegen.draft import Draft
from sartor.codegen.iree_compiler import ir
from sartor.codegen.layer import LayerKind, Task
from sartor.codegen.layouts import CHANNELS_LAST
from sartor.codegen.matmul_form import flatten
from sartor.codegen.packing import Reshape
from sartor.codegen.routine import Rejected
from sartor.codegen.snippet import inline, tensor_type


def patches_draft(task: Task) -> Draft | Rejected:
    """A convolution as a matrix product, flattened, or why it is none; a 1x1 filter takes its pixels as they lie."""
    convolution = convolution_of(task) if task.kind is LayerKind.CONVOLUTION else None
    if convolution is None:
        return Rejected("not a two-dimensional convolution without groups")
    draft = Draft.images(task, CHANNELS_LAST)
    if isinstance(draft, Rejected):
        return draft
    try:
        if not convolution.is_product:
            gather_patches(draft, convolution)
        flatten(draft)
    except ValueError as error:
        return Rejected(str(error))
    return draft


def gather_patches(draft: Draft, convolution: Convolution) -> None:
    """Replace the NHWC convolution at a layer's root by a gather and a matrix product.

    Raises:
        ValueError: if the filter is no weight.
    """
    with draft.module.context as context, ir.Location.unknown(context):
        root = draft.root
        index = draft.weight_index(root.operands[1])
        if index is None:
            raise ValueError("the filter is no weight")
        channels, inner, *kernel = convolution.filter.shape
        element = convolution.filter.dtype
        flat = (kernel[0] * kernel[1] * inner, channels)
        draft.pack(index, (Reshape(flat),), tensor_type(flat, element))
        (product,) = inline(_text(convolution), list(root.operands), ir.InsertionPoint(root))
        root.results[0].replace_all_uses_with(product)
        root.erase()


def _text(convolution: Convolution) -> str:
    """A function from image, flat filter and initial value to the convolution."""
    element = convolution.image.dtype
    batch, inner, height, width = convolution.image.shape
    channels, _, *kernel = convolution.filter.shape
    _, _, rows, columns = convolution.result.shape
    (down, right), (far_down, far_right) = convolution.strides, convolution.dilations
    image = tensor_type((batch, height, width, inner), element)
    result = tensor_type((batch, rows, columns, channels), element)
    patches = tensor_type((batch, rows, columns, *kernel, inner), element)
    matrix = tensor_type((batch * rows * columns, kernel[0] * kernel[1] * inner), element)
    weights = tensor_type((kernel[0] * kernel[1] * inner, channels), element)
    product = tensor_type((batch * rows * columns, channels), element)
    loops = "n, h, w, y, x, c"
    source = f"n, h * {down} + y * {far_down}, w * {right} + x * {far_right}, c"
    return f"""util.func private @product(%image: {image}, %weights: {weights}, %initial: {result}) -> {result} {{
  %room = tensor.empty() : {patches}
  %patches = linalg.generic {{
      indexing_maps = [affine_map<({loops}) -> ({source})>, affine_map<({loops}) -> ({loops})>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "parallel"]}}
      ins(%image : {image}) outs(%room : {patches}) {{
  ^bb0(%pixel: {element}, %out: {element}):
    linalg.yield %pixel : {element}
  }} -> {patches}
  %matrix = tensor.collapse_shape %patches [[0, 1, 2], [3, 4, 5]] : {patches} into {matrix}
  %start = tensor.collapse_shape %initial [[0, 1, 2], [3]] : {result} into {product}
  %sums = linalg.generic {{
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>,
                       affine_map<(m, n, k) -> (m, n)>],
      iterator_types = ["parallel", "parallel", "reduction"]}}
      ins(%matrix, %weights : {matrix}, {weights}) outs(%start : {product}) {{
  ^bb0(%a: {element}, %b: {element}, %sum: {element}):
    %ab = arith.mulf %a, %b : {element}
    %next = arith.addf %sum, %ab : {element}
    linalg.yield %next : {element}
  }} -> {product}
  %result = tensor.expand_shape %sums [[0, 1, 2], [3]] output_shape [{batch}, {rows}, {columns}, {channels}]
      : {product} into {result}
  util.return %result : {result}
}}"""
