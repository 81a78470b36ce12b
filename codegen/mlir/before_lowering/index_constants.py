"""Makes constants of tensors that hold indices, as those that ``TopK`` sorts beside its values.

IREE 3.13 takes a dispatch without operands for a fill, which each of its readers may repeat in place of a copy. Once
copies are gone it merges equal dispatches again. Two operations that overwrite their indices, as sorts do, then share
one buffer, and the second sorts what the first has left (docs/records/iree-notes.md). Constants are always copied.
Barriers keep IREE from cloning small ones into the dispatches that overwrite them, which then do not compile.
"""

from __future__ import annotations

import math

import numpy as np

from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import nested
from sartor.codegen.mlir.snippet import inline, tensor_parts, tensor_type

_BODY = ["linalg.index", "arith.index_cast", "linalg.yield"]
_TYPES = {"i32": np.int32, "i64": np.int64}
_MOST_BYTES = 1 << 20
"""Larger ones are spread along the other axes by each call, so that a module holds one line of them."""


def index_constants(module: ir.Module) -> None:
    """Replace tensors of indices along one axis by constants, in place, behind barriers that ``drop_barriers`` takes.

    Tensors of dynamic shape stay as they are.
    """
    with module.context, ir.Location.unknown(module.context):
        for op in [inner for inner in nested(module.operation) if _holds_indices(inner)]:
            (result,) = inline(_constant(op), list(op.operands), ir.InsertionPoint(op))
            op.results[0].replace_all_uses_with(result)
            op.erase()


def _holds_indices(op: ir.Operation) -> bool:
    """Whether an operation writes the index along an axis to each element of a tensor, and nothing else."""
    if op.name != "linalg.generic" or len(op.operands) != 1 or len(op.results) != 1:
        return False
    tensor = ir.RankedTensorType(op.results[0].type)
    (written,) = ir.ArrayAttr(op.attributes["indexing_maps"])
    is_plain = ir.AffineMapAttr(written) == ir.AffineMapAttr.get(ir.AffineMap.get_identity(tensor.rank))
    return is_plain and tensor.has_static_shape and str(tensor.element_type) in _TYPES and _yields_index(op)


def _yields_index(op: ir.Operation) -> bool:
    body = [view.operation for view in op.regions[0].blocks[0].operations]
    if [op.name for op in body] != _BODY:
        return False
    index, cast, end = body
    return bool(cast.operands[0] == index.results[0] and end.operands[0] == cast.results[0])


def _constant(op: ir.Operation) -> str:
    """MLIR of a function of the tensor that would be written, which returns the indices."""
    shape, element = tensor_parts(op.results[0])
    axis = ir.IntegerAttr(op.regions[0].blocks[0].operations[0].operation.attributes["dim"]).value
    line = np.arange(shape[axis], dtype=_TYPES[element])
    others = [index for index in range(len(shape)) if index != axis]
    if math.prod(shape) * line.itemsize > _MOST_BYTES:
        return _spread(shape, element, axis, line)
    whole = tensor_type(shape, element)
    return f"""util.func private @indices(%empty: {whole}) -> {whole} {{
  %values = arith.constant {_dense(np.broadcast_to(np.expand_dims(line, others), shape))} : {whole}
  %kept = util.optimization_barrier %values : {whole}
  util.return %kept : {whole}
}}"""


def _spread(shape: tuple[int, ...], element: str, axis: int, line: np.ndarray) -> str:
    whole, part = tensor_type(shape, element), tensor_type(line.shape, element)
    loops = ", ".join(f"d{index}" for index in range(len(shape)))
    kinds = ", ".join(['"parallel"'] * len(shape))
    return f"""util.func private @indices(%empty: {whole}) -> {whole} {{
  %values = arith.constant {_dense(line)} : {part}
  %kept = util.optimization_barrier %values : {part}
  %all = linalg.generic {{
      indexing_maps = [affine_map<({loops}) -> (d{axis})>, affine_map<({loops}) -> ({loops})>],
      iterator_types = [{kinds}]}} ins(%kept : {part}) outs(%empty : {whole}) {{
  ^bb0(%one: {element}, %old: {element}):
    linalg.yield %one : {element}
  }} -> {whole}
  util.return %all : {whole}
}}"""


def _dense(values: np.ndarray) -> str:
    return f'dense<"0x{np.ascontiguousarray(values).tobytes().hex()}">' if values.size > 1 else "dense<0>"
