"""Choices whose condition is the same constant for all elements, as of rows of attention that no mask hides."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from onnx import ModelProto, NodeProto, OperatorSetIdProto, helper
from onnx.reference import ReferenceEvaluator

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.evaluator_errors import EVALUATOR_ERRORS
from sartor.onnx_model.graphs.graph import Array, GraphEditor, editors, opset
from sartor.onnx_model.graphs.limits import MAX_FOLDED_BYTES

_MASKING = frozenset(
    {
        *(
            "Add",
            "And",
            "Cast",
            "CastLike",
            "ConstantOfShape",
            "Equal",
            "Expand",
            "Greater",
            "GreaterOrEqual",
            "Identity",
        ),
        *("Less", "LessOrEqual", "Mul", "Not", "Or", "Range", "ReduceMax", "ReduceMin", "Sub", "Unsqueeze", "Where"),
    }
)
"""What masks are made of."""
_MOST_NODES, _MOST_ELEMENTS = 24, 1 << 22


def take_decided_choices(model: ModelProto) -> tuple[str, ...]:
    """Replace choices by what they take everywhere, if that has the shape of the result; returns names of nodes.

    ONNX's attention sets rows to zero that see no key. Which these are is known without a mask that is an input: then
    it hides the softmax from what computes attention at once. The mask itself may be too large to be folded.
    """
    version = helper.make_opsetid("", opset(model))
    changed = list[str]()
    for editor in editors(model.graph):
        changed += editor.rewrite(partial(_taken, editor=editor, version=version))
    return tuple(changed)


def _taken(node: NodeProto, editor: GraphEditor, version: OperatorSetIdProto) -> list[NodeProto] | None:
    if node.op_type != "Where" or node.domain:
        return None
    condition = editor.constant(node.input[0])
    if condition is None:
        condition = _computed(node.input[0], editor, version)
    if condition is None or not condition.size or condition.min() != condition.max():
        return None
    taken = node.input[1 if condition.min() else 2]
    shape = editor.shape(taken)
    if shape is None or shape != editor.shape(node.output[0]):
        return None
    emit = Emitter(editor, node)
    emit("Identity", taken, output=node.output[0])
    return emit.nodes


def _computed(name: str, editor: GraphEditor, version: OperatorSetIdProto) -> Array | None:
    """A small value that follows from constants by way of larger ones; None if it is large, or follows from inputs."""
    shape = editor.shape(name)
    if shape is None or math.prod(shape) > MAX_FOLDED_BYTES:
        return None
    nodes, constants, pending = list[NodeProto](), dict[str, Array](), [name]
    while pending:
        read = pending.pop()
        if read in constants or any(read in known.output for known in nodes):
            continue
        value, producer = editor.constant(read), editor.producer(read)
        if value is not None:
            constants[read] = value
        elif producer is None or not _is_masking(producer, editor) or len(nodes) == _MOST_NODES:
            return None
        else:
            nodes.append(producer)
            pending += filter(None, producer.input)
    return _evaluated(name, [node for node in editor.nodes if node in nodes], constants, version)


def _is_masking(node: NodeProto, editor: GraphEditor) -> bool:
    shapes = [editor.shape(name) for name in node.output]
    is_small = all(shape is not None and math.prod(shape) <= _MOST_ELEMENTS for shape in shapes)
    return not node.domain and node.op_type in _MASKING and is_small


def _evaluated(
    name: str, nodes: list[NodeProto], constants: dict[str, Array], version: OperatorSetIdProto
) -> Array | None:
    """The value of a name by ONNX's evaluator; None if it computes none."""
    known = [helper.make_tensor_value_info(constant, 0, None) for constant in constants]
    result = helper.make_tensor_value_info(name, 0, None)
    graph = helper.make_graph(nodes, "condition", known, [result])
    try:
        model = helper.make_model(graph, opset_imports=[version])
        (value,) = ReferenceEvaluator(model).run(None, constants)
    except EVALUATOR_ERRORS:
        return None
    return np.asarray(value)
