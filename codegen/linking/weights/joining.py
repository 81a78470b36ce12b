"""Keeps the time to compile a module with thousands of weights in proportion to their number.

By default IREE writes constants of up to 256 bytes into code, as the bias of 64 channels, and then compiles layers one
by one that are equal but for their bias. Several of its passes from flow to stream take time that grows with the square
of the number of global values, such as weights (``SimplifyGlobalAccesses``, ``FuseGlobals``). A dispatch reads a slice
of a global by its offset, without a copy, as it reads a global of its own.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import nested, symbol

_MANY = 1000
# The option for it holds for all modules that a process compiles, so it is of no use here.
_MOST_BYTES_IN_CODE = 256
# ElideAsyncCopies compares each slice of a global with every other.
_GROUP = 64
_ALIGNMENT = 64
_INTEGERS = "iub"
_RESOURCE = re.compile(r'dense_resource<"?(?P<name>[^">]+)"?>')


@dataclass(frozen=True)
class _Slice:
    """Which bytes of a group are a weight."""

    group: str
    group_bytes: int
    offset: int
    size: int


def are_many(weights: Mapping[str, np.ndarray]) -> bool:
    """Whether a module takes long to compile for the number of its weights alone."""
    return len(weights) > _MANY


def kept_out_of_code(weights: Mapping[str, np.ndarray]) -> set[str]:
    """Names of small weights that IREE must not know before flow level, so that layers that differ in them share code.

    Integers are not among them, as they may be zero points, without which IREE chooses slower code.
    """
    return {
        name
        for name, array in weights.items()
        if array.ndim and array.nbytes <= _MOST_BYTES_IN_CODE and array.dtype.kind not in _INTEGERS
    }


def join_weights(module: ir.Module, weights: Mapping[str, np.ndarray]) -> None:
    """Replace global tensors by slices of larger ones, at flow level.

    Args:
        module: globals have resources as their values.
        weights: array of each resource, by its name; what IREE computed of weights has other names, and stays.
    """
    with module.context, ir.Location.unknown(module.context):
        filled = {name for name, array in weights.items() if array.size}
        tensors = {symbol(op): op for op in _globals(module) if _resource(op) in filled}
        slices: dict[str, _Slice] = {}
        remaining = iter(tensors.values())
        while group := list(itertools.islice(remaining, _GROUP)):
            slices |= _join(group, [_bytes(weights[_resource(op) or ""]) for op in group])
        for op in [op for view in module.body.operations for op in nested(view.operation)]:
            if op.name == "util.global.load" and _loaded(op) in slices:
                _replace_load(op, slices[_loaded(op)])
        for name in slices:
            tensors[name].erase()


def _globals(module: ir.Module) -> list[ir.Operation]:
    operations = [view.operation for view in module.body.operations]
    return [op for op in operations if op.name == "util.global" and "is_mutable" not in op.attributes]


def _resource(constant: ir.Operation) -> str | None:
    """Name of the resource that is a global's value; None if it has another value."""
    text = str(constant.attributes["initial_value"]) if "initial_value" in constant.attributes else ""
    match = _RESOURCE.match(text)
    return match["name"] if match else None


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.int8)


def _join(constants: Sequence[ir.Operation], values: Sequence[np.ndarray]) -> dict[str, _Slice]:
    """Put a global before some, which holds the bytes of all; returns which part of it each is."""
    first = constants[0]
    name = f"{symbol(first)}_and_more"
    starts = [0, *itertools.accumulate(_ALIGNMENT * math.ceil(value.nbytes / _ALIGNMENT) for value in values)]
    joined = np.zeros(starts.pop(), np.int8)
    for start, value in zip(starts, values, strict=True):
        joined[start : start + value.nbytes] = value
    tensor = _byte_tensor(joined.nbytes)
    group = first.clone(ip=ir.InsertionPoint(first)).operation
    group.attributes["sym_name"] = ir.StringAttr.get(name)
    group.attributes["type"] = ir.TypeAttr.get(tensor)
    group.attributes["initial_value"] = ir.DenseResourceElementsAttr.get_from_buffer(joined, name, tensor)
    group.attributes["inlining_policy"] = ir.Attribute.parse("#util.inline.never")
    return {
        symbol(op): _Slice(name, joined.nbytes, start, value.nbytes)
        for op, start, value in zip(constants, starts, values, strict=True)
    }


def _loaded(load: ir.Operation) -> str:
    return str(ir.FlatSymbolRefAttr(load.attributes["global"]).value)


def _replace_load(load: ir.Operation, part: _Slice) -> None:
    """Read a part of a group instead of a global."""
    (result,) = load.results
    group = {"global": ir.FlatSymbolRefAttr.get(part.group), "is_immutable": ir.UnitAttr.get()}
    with ir.InsertionPoint(load):
        whole = ir.Operation.create(load.name, [_byte_tensor(part.group_bytes)], attributes=group)
        operands = [whole.result, _index(part.offset), _index(part.size)]
        taken = _created("flow.tensor.slice", operands, _byte_tensor(part.size), (1, 0, 1, 1, 0))
        weight = _created("flow.tensor.bitcast", [taken], result.type, (1, 0, 0))
    result.replace_all_uses_with(weight)
    load.erase()


def _created(name: str, operands: Sequence[ir.Value], result: ir.Type, segments: Sequence[int]) -> ir.Value:
    """The result of a new operation whose kinds of operands are as many as ``segments`` says."""
    attributes = {"operandSegmentSizes": ir.DenseI32ArrayAttr.get(segments)}
    return ir.Operation.create(name, [result], operands, attributes).result


def _index(number: int) -> ir.Value:
    index = ir.IndexType.get()
    attributes = {"value": ir.IntegerAttr.get(index, number)}
    return ir.Operation.create("arith.constant", [index], attributes=attributes).result


def _byte_tensor(size: int) -> ir.Type:
    return ir.RankedTensorType.get([size], ir.IntegerType.get_signless(8))
