"""What IREE compiles to wrong results for Vulkan, written otherwise.

IREE compiles named depthwise convolutions so that their loops over pixels come before the one over channels, and the
result has them the other way round: of two and more channels some are left out, and stay 0
(docs/records/iree-notes.md). With loops in the order of the result it is right.
"""

from __future__ import annotations

from sartor.codegen.mlir.before_lowering.widened_operands import widen_apart
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import nested
from sartor.codegen.mlir.snippet import inline, tensor_parts

_NAMES = frozenset(
    {
        "linalg.depthwise_conv_1d_ncw_cw",
        "linalg.depthwise_conv_2d_nchw_chw",
        "linalg.depthwise_conv_3d_ncdhw_cdhw",
    }
)


def order_depthwise_loops(module: ir.Module) -> None:
    """Replace depthwise convolutions of images ``[N, C, ...]`` by loops over N, C, pixels and taps, in place."""
    with module.context, ir.Location.unknown(module.context):
        for op in [inner for inner in nested(module.operation) if inner.name in _NAMES]:
            (result,) = inline(_loops(op), list(op.operands), ir.InsertionPoint(op))
            op.results[0].replace_all_uses_with(result)
            op.erase()


def _loops(op: ir.Operation) -> str:
    """MLIR of a function of image, filter and initial value that computes a depthwise convolution."""
    image, taps, start = (str(operand.type) for operand in op.operands)
    spatial = len(tensor_parts(op.operands[1])[0]) - 1
    pixels, windows = ([f"{letter}{axis}" for axis in range(spatial)] for letter in "pk")
    steps = zip(pixels, windows, _numbers(op, "strides"), _numbers(op, "dilations"), strict=True)
    read = ", ".join(f"{pixel} * {stride} + {tap} * {far}" for pixel, tap, stride, far in steps)
    loops = ", ".join(["n", "c", *pixels, *windows])
    maps = (f"n, c, {read}", ", ".join(["c", *windows]), ", ".join(["n", "c", *pixels]))
    kinds = ['"parallel"'] * (2 + spatial) + ['"reduction"'] * spatial
    elements = [tensor_parts(operand)[1] for operand in op.operands]
    return f"""util.func private @depthwise(%image: {image}, %taps: {taps}, %start: {start}) -> {start} {{
  %result = linalg.generic {{
      indexing_maps = [{", ".join(f"affine_map<({loops}) -> ({expr})>" for expr in maps)}],
      iterator_types = [{", ".join(kinds)}]}}
      ins(%image, %taps : {image}, {taps}) outs(%start : {start}) {{
  ^bb0(%pixel: {elements[0]}, %tap: {elements[1]}, %before: {elements[2]}):
    {_body(*elements)}
  }} -> {start} {op.location}
  util.return %result : {start}
}}"""


def _body(pixel: str, tap: str, total: str) -> str:
    """The product of a number of the image and one of the filter, added to a sum of a type that is as wide or wider."""
    kind, extend = ("f", "extf") if "f" in total else ("i", "extsi")
    lines, factors = [], []
    for name, element in (("%pixel", pixel), ("%tap", tap)):
        if element != total:
            lines.append(f"{name}_wide = arith.{extend} {name} : {element} to {total}")
        factors.append(name if element == total else f"{name}_wide")
    lines.append(f"%product = arith.mul{kind} {', '.join(factors)} : {total}")
    lines.append(f"%sum = arith.add{kind} %before, %product : {total}")
    return "\n    ".join([*lines, f"linalg.yield %sum : {total}"])


def _numbers(op: ir.Operation, name: str) -> list[int]:
    """Strides or dilations along each dimension."""
    if name not in op.attributes:
        return [1] * (len(tensor_parts(op.operands[1])[0]) - 1)
    return [int(element) for element in ir.DenseIntElementsAttr(op.attributes[name])]


def avoid_defects(module: ir.Module) -> None:
    """Rewrite a module of source dialects, in place; ``drop_barriers`` has to follow once dispatches are formed."""
    order_depthwise_loops(module)
    widen_apart(module)
