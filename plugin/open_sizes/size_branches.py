"""Nodes that tell some sizes from others, by which a model may compute something else for these alone.

A model is imported with a few sizes, and what a comparison of a size gives for all of these is a constant then. Files
for any size are run with many sizes; where nobody runs them, models with such nodes are no models for any size.
"""

from __future__ import annotations

from pathlib import Path

from onnx import ModelProto, NodeProto, TensorProto

from sartor.errors import SartorError, UnsupportedModelError
from sartor.onnx_model.dynamic.computed_length import constant_of
from sartor.onnx_model.graphs.graph import GraphEditor, attributes
from sartor.onnx_model.graphs.walk import describe_node
from sartor.onnx_model.operator_types.moving import MOVING
from sartor.onnx_model.reading.load import read_model
from sartor.tuning.workers.protocol import WorkerError

_SIZE_OPS = frozenset({"Shape", "Size"})
_MOVING = MOVING | {"Cast"}
_COMPUTING = frozenset({"Abs", "Add", "CumSum", "Div", "Mul", "Neg", "Pow", "ReduceProd", "ReduceSum", "Sub", "Sum"})
_COMPARING = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
# Of two sizes, or of a size and a number, these give another one from some size on.
_CHOOSING = frozenset({"ArgMax", "ArgMin", "Clip", "Max", "Min", "Mod", "ReduceMax", "ReduceMin", "Relu", "Sign"})
# What is in their bodies is not followed.
_CONTROLLING = frozenset({"If", "Loop", "Scan"})


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


def branch_on_sizes(model: ModelProto) -> NodeProto | None:
    """The first node that compares a size, or takes the larger or smaller of some, or whose body may; None if there is
    none.

    Whether a shape has negative elements, as exporters ask before they expand a value, is the same for all sizes.
    """
    editor = GraphEditor(model.graph)
    moved, computed, bodies = set[str](), set[str](), {function.name for function in model.functions}
    for node in editor.nodes:
        operands = set(node.input)
        if node.op_type in _CONTROLLING | bodies:
            return node
        if not (node.op_type in _SIZE_OPS or operands & (moved | computed)):
            continue
        is_choice = node.op_type in _COMPARING | _CHOOSING or attributes(node).get("to") == TensorProto.BOOL
        if is_choice and not _asks_for_signs(node, moved, editor):
            return node
        if node.op_type in _SIZE_OPS or (node.op_type in _MOVING and not operands & computed):
            moved.update(node.output)
        elif node.op_type in _MOVING | _COMPUTING:
            computed.update(node.output)
    return None


def _asks_for_signs(node: NodeProto, sizes: set[str], editor: GraphEditor) -> bool:
    """Whether a node compares sizes, as they are, with negative numbers."""
    others = [constant_of(name, editor) for name in node.input if name not in sizes]
    return node.op_type in _COMPARING and all(other is not None and bool((other < 0).all()) for other in others)
