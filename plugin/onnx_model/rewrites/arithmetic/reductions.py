"""Writes out reductions on which IREE fails, or which it computes to infinity."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, node_rewrite, optional_input

_COMPUTED_IN: Mapping[int, int] = {
    TensorProto.FLOAT: TensorProto.FLOAT,
    TensorProto.FLOAT16: TensorProto.FLOAT,
    TensorProto.BFLOAT16: TensorProto.FLOAT,
    TensorProto.DOUBLE: TensorProto.DOUBLE,
    TensorProto.INT32: TensorProto.DOUBLE,
    TensorProto.INT64: TensorProto.DOUBLE,
}
"""The type in which the exponentials or squares of another one are summed."""
_INTEGERS = (TensorProto.INT32, TensorProto.INT64)
_OF_ONE = {
    **{"ReduceL1": "Abs", "ReduceL2": "Abs", "ReduceLogSum": "Log", "ReduceLogSumExp": "Identity"},
    "ReduceSumSquare": "Mul",
}


@node_rewrite(*_OF_ONE)
def written_unit_reductions(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Replace reductions over dimensions of one element by what they compute of it.

    So are those with ``noop_with_empty_axes`` and no axes, of which IREE's importer passes on the operand.
    IREE 3.13 aborts on those of ``ReduceL2`` and ``ReduceLogSumExp``: "dialect conversion attempted to replace a root
    operation that has no parent block".
    """
    if _is_log_of_integers(node, editor):
        return None
    before, after = editor.shape(node.input[0]), editor.shape(node.output[0])
    if before is None or after is None:
        return None
    axes = [] if _keeps_all(node, editor) else _axes(node, editor, len(before))
    if axes is None or any(before[axis] != 1 for axis in axes):
        return None
    emit = Emitter(editor, node)
    count = 2 if node.op_type == "ReduceSumSquare" else 1
    value = emit(_OF_ONE[node.op_type], *[node.input[0]] * count)
    emit("Reshape", value, emit.constant(list(after), "shape"), part="shape", output=node.output[0])
    return emit.nodes


@node_rewrite("ReduceLogSumExp")
def finite_log_sums(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Subtract the largest value before ``ReduceLogSumExp`` takes exponentials.

    IREE 3.13 takes them of the values as they are, which gives infinity above 88 in float32. Of an infinite largest
    value nothing is subtracted, as infinity minus itself is no number.
    """
    kind = _COMPUTED_IN.get(editor.element_type(node.input[0]))
    before, after = editor.shape(node.input[0]), editor.shape(node.output[0])
    if kind is None or before is None or after is None or 0 in before or _axes(node, editor, len(before)) is None:
        return None
    emit, axes = Emitter(editor, node), node.input[1:]
    value = _cast(emit, node.input[0], kind)
    given: dict[str, Any] = {"axes": attributes(node).get("axes"), "keepdims": 1}
    most = emit("ReduceMax", value, *axes, part="found", **given)
    numbers = helper.tensor_dtype_to_np_dtype(kind)
    infinity, nothing = (emit.constant(number, "bound", numbers) for number in (math.inf, 0.0))
    is_finite = emit("Less", emit("Abs", most, part="size"), infinity, part="finite")
    largest = emit("Where", is_finite, most, nothing, part="largest")
    powers = emit("Exp", emit("Sub", value, largest, part="difference"), part="exp")
    total = emit("Add", emit("ReduceLogSum", powers, *axes, **given), largest, part="add")
    shaped = emit("Reshape", total, emit.constant(list(after), "shape"), part="shape")
    emit("Cast", shaped, part="result", output=node.output[0], to=editor.element_type(node.input[0]))
    return emit.nodes


@node_rewrite("ReduceL2")
def exact_norms(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Take the root of the sum of squares for ``ReduceL2`` of float64 and integers.

    IREE 3.13 takes it in float32, which is infinite for 1e20 and has seven digits.
    """
    element = editor.element_type(node.input[0])
    if _COMPUTED_IN.get(element) != TensorProto.DOUBLE:
        return None
    emit, given = Emitter(editor, node), {item.name: helper.get_attribute_value(item) for item in node.attribute}
    value = _cast(emit, node.input[0], TensorProto.DOUBLE)
    total = emit("ReduceSumSquare", value, *node.input[1:], **given)
    emit("Cast", emit("Sqrt", total, part="root"), part="result", output=node.output[0], to=element)
    return emit.nodes


@node_rewrite()
def wide_log_sums(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Take ``ReduceLogSum`` of integers in float64.

    IREE 3.13 sums in the integers' type, whose sums wrap around, and takes the logarithm in float32.
    """
    if not _is_log_of_integers(node, editor):
        return None
    emit = Emitter(editor, node)
    wide = _cast(emit, node.input[0], TensorProto.DOUBLE)
    value = emit("Log", wide, part="log") if _keeps_all(node, editor) else emit.copy([wide, *node.input[1:]])
    emit("Cast", value, part="result", output=node.output[0], to=editor.element_type(node.input[0]))
    return emit.nodes


def _is_log_of_integers(node: NodeProto, editor: GraphEditor) -> bool:
    return node.op_type == "ReduceLogSum" and editor.element_type(node.input[0]) in _INTEGERS


def _cast(emit: Emitter, value: str, kind: int) -> str:
    return value if emit.editor.element_type(value) == kind else emit("Cast", value, part="wide", to=kind)


@node_rewrite("ReduceMean")
def integer_means(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Divide the sum for ``ReduceMean`` of integers.

    IREE 3.13 rejects it, and names no node: "failed to legalize operation 'torch.constant.int'".
    """
    if editor.element_type(node.input[0]) not in _INTEGERS:
        return None
    before, after = editor.shape(node.input[0]), editor.shape(node.output[0])
    axes = None if before is None else _axes(node, editor, len(before))
    if before is None or after is None or axes is None:
        return None
    emit = Emitter(editor, node)
    total = emit("ReduceSum", node.input[0], emit.constant(axes, "axes"), keepdims=1)
    count = emit.like(math.prod(before[axis] for axis in axes), node.input[0], "count")
    mean = emit("Div", total, count, part="mean")
    emit("Reshape", mean, emit.constant(list(after), "shape"), part="shape", output=node.output[0])
    return emit.nodes


def _keeps_all(node: NodeProto, editor: GraphEditor) -> bool:
    """Whether no dimension is reduced, as the node says that none is where no axes are given."""
    given = editor.constant(optional_input(node, 1)) if optional_input(node, 1) else np.empty(0)
    return bool(attributes(node).get("noop_with_empty_axes")) and given is not None and not given.size


def _axes(node: NodeProto, editor: GraphEditor, rank: int) -> list[int] | None:
    """The reduced axes: all of them if none are given; None if they are computed, or if nothing is reduced then."""
    settings = attributes(node)
    axes: list[int] = settings.get("axes", [])
    if name := optional_input(node, 1):
        given = editor.constant(name)
        if given is None:
            return None
        axes = given.tolist()
    if not axes and settings.get("noop_with_empty_axes"):
        return None
    return axes or list(range(rank))
