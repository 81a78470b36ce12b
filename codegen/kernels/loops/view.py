"""Views: tensors that are reshaped, transposed or repeated versions of others, as strides instead of copies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.kernels.loops.access import row_major
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import copies, defining_op, indexing_maps
from sartor.codegen.mlir.snippet import tensor_parts

_COLLAPSE, _EXPAND = "tensor.collapse_shape", "tensor.expand_shape"
Strides = tuple[int, ...]

Parts = tuple[tuple[int, int], ...]
"""Extents and strides of what a dimension is joined of, the outermost first; most have one."""


@dataclass(frozen=True)
class View:
    """A tensor whose elements are those of ``origin``, with these strides, in elements, along its own dimensions."""

    origin: ir.Value
    strides: Strides


@dataclass(frozen=True)
class Layout:
    """A tensor whose elements are those of ``origin``, with the parts of each of its own dimensions."""

    origin: ir.Value
    dims: tuple[Parts, ...]


def view_of(value: ir.Value) -> View:
    """A value as a view, followed back through reshapes, transposes and broadcasts.

    Raises:
        RejectionError: if its elements have no constant strides.
    """
    layout = layout_of(value)
    return View(layout.origin, tuple(map(stride_of, layout.dims)))


def layout_of(value: ir.Value) -> Layout:
    """A value like ``view_of`` it, whose dimensions may be joined of several that are not adjacent.

    Raises:
        RejectionError: if a dimension is split within one of those that it is joined of.
    """
    op = defining_op(value)
    if op is None or not (op.name in (_COLLAPSE, _EXPAND) or copies(op)):
        shape = tensor_parts(value)[0]
        return Layout(value, tuple(((size, step),) for size, step in zip(shape, row_major(shape), strict=True)))
    shown = layout_of(op.operands[0])
    if op.name == _COLLAPSE:
        return Layout(shown.origin, tuple(_merged(shown.dims, group) for group in _groups(op)))
    if op.name == _EXPAND:
        shape, pairs = tensor_parts(value)[0], zip(shown.dims, _groups(op), strict=True)
        split = [split_parts(parts, [shape[axis] for axis in group]) for parts, group in pairs]
        return Layout(shown.origin, tuple(parts for parts_of_axis in split for parts in parts_of_axis))
    return Layout(shown.origin, _turned(op, shown.dims))


def stride_of(parts: Parts) -> int:
    """The stride along a dimension.

    Raises:
        RejectionError: if it is joined of several.
    """
    if len(parts) != 1:
        raise RejectionError("an operand's elements have no constant strides")
    return parts[0][1]


def split_parts(parts: Parts, sizes: Sequence[int]) -> list[Parts]:
    """The parts of each of the dimensions that one is split into.

    Raises:
        RejectionError: if the sizes are no products of the parts' own.
    """
    rest, split = list(parts), list[Parts]()
    for size in reversed(sizes):
        if size <= 1:
            split.append(((size, rest[-1][1]),))
            continue
        taken, left = list[tuple[int, int]](), size
        while left > 1:
            extent, step = rest.pop()
            count = left if extent % left == 0 else extent
            if left % count or (count == 1 and not rest):
                raise RejectionError("a dimension is split within one of those that it is joined of")
            taken += [(count, step)] if count > 1 else []
            left //= count
            if extent != count or not rest:
                rest.append((extent // count, step * count))
        split.append(tuple(reversed(taken)))
    return split[::-1]


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
    return [
        [ir.IntegerAttr(attribute).value for attribute in ir.ArrayAttr(group)]
        for group in op.attributes["reassociation"]
    ]


def _merged(dims: Sequence[Parts], group: Sequence[int]) -> Parts:
    """The parts of several dimensions that are merged into one; those that are adjacent become one."""
    kept = list[tuple[int, int]]()
    for size, step in (part for axis in group for part in dims[axis] if part[0] != 1):
        if kept and kept[-1][1] == step * size:
            kept[-1] = kept[-1][0] * size, step
        else:
            kept.append((size, step))
    return tuple(kept) or ((1, 0),)


def _joined(shape: Sequence[int], strides: Sequence[int], group: Sequence[int]) -> int:
    """The stride along several dimensions that are merged into one."""
    return stride_of(_merged([((size, step),) for size, step in zip(shape, strides, strict=True)], group))


def _split(shape: Sequence[int], step: int, group: Sequence[int]) -> list[int]:
    """Strides along the parts that a dimension is split into."""
    sizes = [shape[axis] for axis in group]
    return [stride_of(parts) for parts in split_parts(((math.prod(sizes), step),), sizes)]


def _dimensions(op: ir.Operation) -> list[ir.AffineDimExpr]:
    dims = [result for result in indexing_maps(op)[0].results if isinstance(result, ir.AffineDimExpr)]
    if len({dim.position for dim in dims}) != len(tensor_parts(op.results[0])[0]):
        raise RejectionError("the layer repeats its result")
    return dims


def _turned(op: ir.Operation, dims: Sequence[Parts]) -> tuple[Parts, ...]:
    turned: list[Parts] = [((size, 0),) for size in tensor_parts(op.results[0])[0]]
    for parts, expression in zip(dims, indexing_maps(op)[0].results, strict=True):
        if isinstance(expression, ir.AffineDimExpr):
            turned[expression.position] = parts
    return tuple(turned)
