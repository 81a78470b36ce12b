"""Views: tensors that are reshaped, transposed or repeated versions of others, as strides instead of copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.kernels.loops.access import row_major
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import copies, defining_op, indexing_maps
from sartor.codegen.mlir.snippet import tensor_parts

_COLLAPSE, _EXPAND = "tensor.collapse_shape", "tensor.expand_shape"
Strides = tuple[int, ...]


@dataclass(frozen=True)
class View:
    """A tensor whose elements are those of ``origin``, with these strides, in elements, along its own dimensions."""

    origin: ir.Value
    strides: Strides


def view_of(value: ir.Value) -> View:
    """A value as a view, followed back through reshapes, transposes and broadcasts.

    Raises:
        RejectionError: if its elements have no constant strides.
    """
    op = defining_op(value)
    if op is None or not (op.name in (_COLLAPSE, _EXPAND) or copies(op)):
        return View(value, row_major(tensor_parts(value)[0]))
    shown = view_of(op.operands[0])
    if op.name == _COLLAPSE:
        shape = tensor_parts(op.operands[0])[0]
        return View(shown.origin, tuple(_joined(shape, shown.strides, group) for group in _groups(op)))
    if op.name == _EXPAND:
        shape = tensor_parts(value)[0]
        steps = [_split(shape, step, group) for step, group in zip(shown.strides, _groups(op), strict=True)]
        return View(shown.origin, tuple(step for part in steps for step in part))
    return View(shown.origin, _turned(op, shown.strides))


def stored_as(value: ir.Value, returned: ir.Value) -> Strides:
    """Strides along the dimensions of ``value`` in the memory of ``returned``, which is a view of all its elements.

    Raises:
        RejectionError: if ``returned`` is no such view, or the strides are not constant.
    """
    steps, shown = row_major(tensor_parts(returned)[0]), returned
    while shown != value:
        op = defining_op(shown)
        if op is None:
            raise RejectionError("the layer has more than a root and elementwise ops after it")
        source, target = tensor_parts(op.operands[0])[0] if op.operands else (), tensor_parts(shown)[0]
        if op.name == _EXPAND:
            steps = tuple(_joined(target, steps, group) for group in _groups(op))
        elif op.name == _COLLAPSE:
            parts = [_split(source, step, group) for step, group in zip(steps, _groups(op), strict=True)]
            steps = tuple(step for part in parts for step in part)
        elif copies(op) and len(source) == len(target):
            steps = tuple(steps[dimension.position] for dimension in _dimensions(op))
        else:
            raise RejectionError("the layer has more than a root and elementwise ops after it")
        shown = op.operands[0]
    return steps


def _groups(op: ir.Operation) -> list[list[int]]:
    """For each dimension of the shorter shape, the dimensions of the longer one that it combines."""
    return [[ir.IntegerAttr(each).value for each in ir.ArrayAttr(group)] for group in op.attributes["reassociation"]]


def _joined(shape: Sequence[int], strides: Sequence[int], group: Sequence[int]) -> int:
    """The stride along several dimensions that are merged into one."""
    kept = [axis for axis in group if shape[axis] != 1]
    for outer, inner in pairwise(kept):
        if strides[outer] != strides[inner] * shape[inner]:
            raise RejectionError("an operand's elements have no constant strides")
    return strides[kept[-1]] if kept else 0


def _split(shape: Sequence[int], step: int, group: Sequence[int]) -> list[int]:
    """Strides along the parts that a dimension is split into."""
    steps = []
    for axis in reversed(group):
        steps.append(step)
        step *= shape[axis]
    return steps[::-1]


def _dimensions(op: ir.Operation) -> list[ir.AffineDimExpr]:
    found = [result for result in indexing_maps(op)[0].results if isinstance(result, ir.AffineDimExpr)]
    if len({each.position for each in found}) != len(tensor_parts(op.results[0])[0]):
        raise RejectionError("the layer repeats its result")
    return found


def _turned(op: ir.Operation, strides: Sequence[int]) -> Strides:
    steps = [0] * len(tensor_parts(op.results[0])[0])
    for step, expression in zip(strides, indexing_maps(op)[0].results, strict=True):
        if isinstance(expression, ir.AffineDimExpr):
            steps[expression.position] = step
    return tuple(steps)
