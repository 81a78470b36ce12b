"""Lets a network that computes in float32 take and give float64, as its ONNX inputs and outputs are declared.

IREE's importer lowers float64 to float32, and takes the bytes that callers pass for those of float32.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import body_of, entry_function, source
from sartor.codegen.mlir.snippet import inline, tensor_parts, tensor_type

_WIDE, _NARROW = "f64", "f32"
# What a string of MLIR has to escape.
_UNQUOTED = re.compile(r"[^ !#-\[\]-~]")
_CONVERT = """util.func private @convert(%value: {given}) -> {result} {{
  %empty = tensor.empty() : {result} loc("{name}")
  %converted = linalg.generic {{
    indexing_maps = [affine_map<({dims}) -> ({dims})>, affine_map<({dims}) -> ({dims})>],
    iterator_types = [{kinds}]
  }} ins(%value : {given}) outs(%empty : {result}) {{
  ^bb0(%in: {before}, %out: {after}):
    %other = arith.{operation} %in : {before} to {after} loc("{name}")
    linalg.yield %other : {after} loc("{name}")
  }} -> {result} loc("{name}")
  util.return %converted : {result}
}}"""


def keep_double_interface(module: ir.Module, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Convert what is passed as float64 where it is read, and what is returned as float64 before that, in place.

    An input that is returned keeps all its digits.

    Args:
        module: linalg on tensors, as it was imported with float64 lowered to float32.
        inputs, outputs: names of the network's, in order, after which conversions are named.
    """
    with module.context, ir.Location.unknown(module.context):
        block = body_of(entry_function(module))
        ops = [view.operation for view in block.operations]
        imports = [op for op in ops if op.name == "hal.tensor.import" and _is_wide(op)]
        names = [inputs[ir.BlockArgument(op.operands[0]).arg_number] for op in imports]
        wide = dict(map(_widened_import, imports, names))
        exports = [op for op in ops if op.name == "hal.tensor.export"]
        if any(map(_is_wide, exports)):
            returned = list(ops[-1].operands)
            _widen_exports(exports, [outputs[returned.index(op.results[0])] for op in exports], wide)


def _is_wide(op: ir.Operation) -> bool:
    """Whether a tensor of float32 crosses the interface as float64."""
    is_import = op.name == "hal.tensor.import"
    encoding = op.attributes["target_encoding" if is_import else "source_encoding"]
    value = op.results[0] if is_import else op.operands[0]
    inside, outside = tensor_parts(value)[1], str(ir.RankedTensorType(ir.TypeAttr(encoding).value).element_type)
    return (inside, outside) == (_NARROW, _WIDE)


def _widened_import(op: ir.Operation, name: str) -> tuple[ir.Value, ir.Value]:
    """Import float64 and narrow it for all readers; returns both, the narrow value first."""
    value = op.results[0]
    shape, _ = tensor_parts(value)
    readers = [(use.owner.operation, use.operand_number) for use in value.uses]
    value.set_type(ir.Type.parse(tensor_type(shape, _WIDE)))
    narrow = _converted(value, _NARROW, ir.InsertionPoint.after(op), name)
    for reader, number in readers:
        reader.operands[number] = narrow
    return narrow, value


def _widen_exports(exports: Sequence[ir.Operation], names: Sequence[str], wide: Mapping[ir.Value, ir.Value]) -> None:
    """Give each export a result of the barrier before it, of its own type.

    Args:
        exports: all of them.
        names: of the outputs.
        wide: values of inputs before they were narrowed, by what they became.
    """
    barrier = source(exports[0].operands[0])
    *sources, fence = barrier.operands
    results, point = list(barrier.results), ir.InsertionPoint(barrier)
    values = []
    for export, name in zip(exports, names, strict=True):
        value = sources[results.index(export.operands[0])]
        if _is_wide(export):
            value = wide[value] if value in wide else _converted(value, _WIDE, point, name)
        values.append(value)
    joined = ir.Operation.create(
        "hal.tensor.barrier", results=[value.type for value in values], operands=[*values, fence], ip=point
    )
    for export, result in zip(exports, joined.results, strict=True):
        export.operands[0] = result
    barrier.erase()


def _converted(value: ir.Value, element: str, point: ir.InsertionPoint, name: str) -> ir.Value:
    shape, before = tensor_parts(value)
    axes = range(len(shape))
    text = _CONVERT.format(
        given=value.type,
        result=tensor_type(shape, element),
        before=before,
        after=element,
        dims=", ".join(f"d{axis}" for axis in axes),
        kinds=", ".join('"parallel"' for _ in axes),
        operation="truncf" if element == _NARROW else "extf",
        name=_UNQUOTED.sub("_", f"{name}/{'narrow' if element == _NARROW else 'wide'}"),
    )
    (converted,) = inline(text, [value], point)
    return converted
