"""An NCHW[x]c convolution inside a dispatch, as a loop over blocks of input channels."""

from __future__ import annotations

from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.lowerings.lowering_config import root_config
from sartor.codegen.lowerings.slices import linear_form
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import indexing_maps, nested
from sartor.codegen.mlir.rewriting.rewrite import Rewrite
from sartor.codegen.mlir.snippet import inline, tensor_parts, tensor_type

_LOOPS = 9


def split_input_blocks(rewrite: Rewrite, columns: int, depth: int) -> None:
    """Replace the convolution over blocked channels inside a dispatch by a loop of plain NHWC convolutions.

    IREE vectorises a convolution of seven loops, but not one of nine. Summing block by block, as NeoCPU does (section
    III-A), leaves seven.

    Args:
        rewrite: a layer whose dispatch holds one convolution ``[1, 1, H, W, x]``.
        columns: columns of the register tile.
        depth: input channels per step.

    Raises:
        RejectionError: if the convolution has another form.
    """
    with rewrite.module.context as context, ir.Location.unknown(context):
        root = next(op for op in nested(rewrite.function) if "compilation_info" in op.attributes)
        if len(ir.ArrayAttr(root.attributes["iterator_types"])) != _LOOPS:
            raise RejectionError("the convolution is not of the form N, OCo, H, W, OCi, ICo, KH, KW, ICi")
        text = _text(root, columns, depth)
        (result,) = inline(text, list(root.operands), ir.InsertionPoint(root))
        root.results[0].replace_all_uses_with(result)
        root.erase()


def _text(root: ir.Operation, columns: int, depth: int) -> str:
    (image, element), (weights, stored), (result, summed) = (tensor_parts(value) for value in root.operands)
    _, blocks, high, wide, block = image
    _, _, *kernel, inner, outer = weights
    _, _, rows, width, _ = result
    (down, far_down), (right, far_right) = (_steps(root, axis) for axis in (2, 3))
    slice_ = tensor_type((1, high, wide, block), element)
    filters = tensor_type((*kernel, inner, outer), stored)
    sums = tensor_type((1, rows, width, outer), summed)
    given = ", ".join(
        f"%{name}: {value.type}" for name, value in zip(("image", "weights", "initial"), root.operands, strict=True)
    )
    whole, packed, wanted = (str(value.type) for value in root.operands)
    config = root_config((1, 1, columns, outer), (1, 1, depth), "ConvTileAndDecomposeExpert")
    return f"""util.func private @blocks({given}) -> {wanted} {{
  %first = arith.constant 0 : index
  %step = arith.constant 1 : index
  %last = arith.constant {blocks} : index
  %start = tensor.collapse_shape %initial [[0, 1], [2], [3], [4]] : {wanted} into {sums}
  %sums = scf.for %block = %first to %last step %step iter_args(%sum = %start) -> ({sums}) {{
    %pixels = tensor.extract_slice %image[0, %block, 0, 0, 0] [1, 1, {high}, {wide}, {block}] [1, 1, 1, 1, 1]
        : {whole} to {slice_}
    %filters = tensor.extract_slice %weights[0, %block, 0, 0, 0, 0] [1, 1, {kernel[0]}, {kernel[1]}, {inner}, {outer}]
        [1, 1, 1, 1, 1, 1] : {packed} to {filters}
    %next = linalg.conv_2d_nhwc_hwcf {{
        strides = dense<[{down}, {right}]> : vector<2xi64>,
        dilations = dense<[{far_down}, {far_right}]> : vector<2xi64>,
        compilation_info = {config}}}
        ins(%pixels, %filters : {slice_}, {filters}) outs(%sum : {sums}) -> {sums}
    scf.yield %next : {sums}
  }}
  %result = tensor.expand_shape %sums [[0, 1], [2], [3], [4]] output_shape {list(result)} : {sums} into {wanted}
  util.return %result : {wanted}
}}"""


def _steps(root: ir.Operation, axis: int) -> tuple[int, int]:
    """Stride and dilation along an image axis."""
    maps = indexing_maps(root)
    factors = linear_form(maps[0].results[axis])
    pixel = maps[2].results[axis].position
    return factors[pixel], next(factor for loop, factor in factors.items() if loop != pixel)
