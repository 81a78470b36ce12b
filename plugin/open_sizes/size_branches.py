"""Nodes that tell some sizes from others, by which a model may compute something else for these alone.

A model is imported with a few sizes, and what a comparison of a size gives for all of these is a constant then. Files
for any size are run with the numbers that sizes are compared with, and their neighbours; where nobody runs them, models
with such nodes are no models for any size.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from onnx import ModelProto, NodeProto, TensorProto

from sartor.errors import SartorError, UnsupportedModelError
from sartor.onnx_model.dynamic.computed_length import constant_of
from sartor.onnx_model.graphs.graph import GraphEditor, attributes
from sartor.onnx_model.graphs.walk import describe_node
from sartor.onnx_model.operator_types.alike import WITH_BODIES
from sartor.onnx_model.operator_types.moving import MOVING
from sartor.onnx_model.reading.load import read_model
from sartor.tuning.workers.protocol import WorkerError

_SIZE_OPS = frozenset({"Shape", "Size"})
_MOVING = MOVING | {"Cast"}
_COMPUTING = frozenset({"Abs", "Add", "CumSum", "Div", "Mul", "Neg", "Pow", "ReduceProd", "ReduceSum", "Sub", "Sum"})
_COMPARING = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
# Of two sizes, or of a size and a number, these give another one from some size on.
_CHOOSING = frozenset({"ArgMax", "ArgMin", "Clip", "Max", "Min", "Mod", "ReduceMax", "ReduceMin", "Relu", "Sign"})


def check_branches(path: Path) -> WorkerError | None:
    """Worker side: refuse a model that tells some sizes from others.

    Args:
        path: ONNX file.
    """
    try:
        model, _ = read_model(path)
        if (node := branch_on_sizes(model)) is not None:
            raise UnsupportedModelError(f"{describe_node(node)} tells some sizes from others")
    except SartorError as error:
        return WorkerError(error)
    return None


def numbers_told(path: Path) -> tuple[int, ...] | WorkerError:
    """Worker side: as ``compared_numbers``, of a file."""
    try:
        model, _ = read_model(path)
    except SartorError as error:
        return WorkerError(error)
    return compared_numbers(model)


def branch_on_sizes(model: ModelProto) -> NodeProto | None:
    """The first node that compares a size, or takes the larger or smaller of some, or whose body may; None if there is
    none.

    Whether a shape has negative elements, as exporters ask before they expand a value, is the same for all sizes.
    """
    bodies = {function.name for function in model.functions} | WITH_BODIES
    choices = {node.output[0]: node for node, is_choice in _of_sizes(model) if is_choice}
    return next((node for node in model.graph.node if node.op_type in bodies or node.output[0] in choices), None)


def compared_numbers(model: ModelProto) -> tuple[int, ...]:
    """Numbers above zero by which a model may tell some sizes from others: those that sizes, or what is computed from
    them, are compared with, added to, or bounded by; none if it compares none."""
    nodes = [*_of_sizes(model)]
    if not any(is_choice for _, is_choice in nodes):
        return ()
    editor = GraphEditor(model.graph)
    constants = (constant_of(name, editor) for node, _ in nodes for name in node.input if node.op_type not in _MOVING)
    numbers = (abs(int(number)) for array in constants if array is not None for number in array.flat)
    return tuple(dict.fromkeys(number for number in numbers if number))


def _of_sizes(model: ModelProto) -> Iterator[tuple[NodeProto, bool]]:
    """Nodes that take sizes, or what is computed from sizes, and whether they tell some from others."""
    editor = GraphEditor(model.graph)
    moved, computed = set[str](), set[str]()
    for node in editor.nodes:
        operands = set(node.input)
        if node.op_type in _SIZE_OPS:
            moved.update(node.output)
        if not operands & (moved | computed):
            continue
        is_choice = node.op_type in _COMPARING | _CHOOSING or attributes(node).get("to") == TensorProto.BOOL
        yield node, is_choice and not _asks_for_signs(node, moved, editor)
        if node.op_type in _MOVING and not operands & computed:
            moved.update(node.output)
        elif node.op_type in _MOVING | _COMPUTING | _CHOOSING:
            computed.update(node.output)


def _asks_for_signs(node: NodeProto, sizes: set[str], editor: GraphEditor) -> bool:
    """Whether a node compares sizes, as they are, with negative numbers."""
    others = [constant_of(name, editor) for name in node.input if name not in sizes]
    return node.op_type in _COMPARING and all(other is not None and bool((other < 0).all()) for other in others)
