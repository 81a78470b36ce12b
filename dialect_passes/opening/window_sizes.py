"""Sizes that windows make: of a convolution or pooling the number of windows that fit into its padded operand, and of a
slice with a stride the number of elements that it takes.

Two values do not tell whether half of an odd size was rounded up or down, but the window, its stride and the operand's
size do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sartor.codegen.analysis.window_loops import WindowLoops
from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.sizes.dims import Extent
from sartor.codegen.ir.sizes.fit import Fit
from sartor.codegen.mlir.iree_compiler import ir, run_passes, shared_context
from sartor.codegen.mlir.operations import body_of, indexing_maps, loop_sizes
from sartor.codegen.mlir.snippet import tensor_parts

_GENERALIZE = "builtin.module(util.func(linalg-generalize-named-ops))"
# Named ops with windows, maps of generic ones, pads, and slices.
_WINDOWS = re.compile(r"linalg\.(conv|depthwise|pooling)|tensor\.(pad|extract_slice)|d\d+( \* \d+)? \+ d\d+")


def knowing_windows(one: Task, other: Task, fit: Fit) -> Fit:
    """The fit that knows how many windows there are along the open sizes of a task's operands.

    Args:
        one: the task with the largest sizes.
        other: the same task with other sizes.
        fit: knows the sizes of the task's activations.
    """
    if _WINDOWS.search(one.body) is None:
        return fit
    with shared_context() as context, ir.Location.unknown(context):
        modules = [ir.Module.parse(task.body) for task in (one, other)]
        for module in modules:
            run_passes(module, _GENERALIZE)
        blocks = [body_of(module.body.operations[0].operation).operations for module in modules]
        for op, twin in zip(*([view.operation for view in block] for block in blocks), strict=False):
            # What is simplified for one of the sizes alone puts others in its place.
            if op.name != twin.name or _ranks(op) != _ranks(twin):
                continue
            # Windows of windows, and of what is padded, follow from what is known already.
            if op.name == "linalg.generic":
                fit = fit.knowing(_window_counts(op, twin, fit))
            elif op.name == "tensor.pad":
                fit = fit.knowing(_padded(op, twin, fit))
            elif op.name == "tensor.extract_slice":
                fit = fit.knowing(_strided(op, twin, fit))
    return fit


def _ranks(op: ir.Operation) -> list[int | None]:
    """The rank of each operand; None where it is no tensor."""
    types = [operand.type for operand in op.operands]
    return [type_.rank if isinstance(type_, ir.RankedTensorType) else None for type_ in types]


def _strided(op: ir.Operation, twin: ir.Operation, fit: Fit) -> Iterator[Extent]:
    """The sizes of a slice that leaves elements out between those that it takes."""
    offsets, sizes, strides = (
        list(ir.DenseI64ArrayAttr(op.attributes[f"static_{name}"])) for name in ("offsets", "sizes", "strides")
    )
    others = list(ir.DenseI64ArrayAttr(twin.attributes["static_sizes"]))
    one, other = (tensor_parts(op_of_pair.operands[0])[0] for op_of_pair in (op, twin))
    extents = _extents(one, other, fit)
    for extent, offset, stride, *pair in zip(extents, offsets, strides, sizes, others, strict=True):
        if extent is None or stride < 2 or not 0 <= offset < stride:
            continue
        counted = extent.plus(stride - 1 - offset).over(stride)
        if [counted.most, counted.at(fit.twin_sizes)] == pair:
            yield counted


def _padded(op: ir.Operation, twin: ir.Operation, fit: Fit) -> Iterator[Extent]:
    """The sizes of a padded tensor."""
    low, high = (list(ir.DenseI64ArrayAttr(op.attributes[f"static_{name}"])) for name in ("low", "high"))
    one, other = (tensor_parts(op_of_pair.operands[0])[0] for op_of_pair in (op, twin))
    for before, behind, extent in zip(low, high, _extents(one, other, fit), strict=True):
        if extent is not None:
            yield extent.plus(before + behind)


def _extents(one: Sequence[int], other: Sequence[int], fit: Fit) -> Iterator[Extent | None]:
    """What each size follows from; None where it is known, or cannot be told."""
    for pair in zip(one, other, strict=True):
        try:
            dim = fit.dim(*pair)
        except ValueError:
            dim = 0
        yield dim if isinstance(dim, Extent) else None


def _window_counts(op: ir.Operation, twin: ir.Operation, fit: Fit) -> Iterator[Extent]:
    counts = loop_sizes(op), loop_sizes(twin)
    if len(counts[0]) != len(counts[1]):
        return
    # A window is as large for all sizes.
    inner = [loop for loop, (one, other) in enumerate(zip(*counts, strict=True)) if one == other]
    for operand, other, indexing in zip(op.operands, twin.operands, indexing_maps(op), strict=True):
        if not isinstance(operand.type, ir.RankedTensorType):
            continue
        extents = _extents(tensor_parts(operand)[0], tensor_parts(other)[0], fit)
        for extent, expression in zip(extents, indexing.results, strict=True):
            window = WindowLoops.of(expression, inner)
            if window is None or extent is None:
                continue
            counted = window.count(extent, counts[0][window.reduced])
            if (counted.most, counted.at(fit.twin_sizes)) == tuple(count[window.moved] for count in counts):
                yield counted
