"""Refuses operators that IREE cannot compute in float64, where a model is lowered such that float64 stays."""

from __future__ import annotations

from onnx import ModelProto, NodeProto, TensorProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, editors
from sartor.onnx_model.graphs.names import naming_origins
from sartor.onnx_model.graphs.prepared import PreparedModel
from sartor.onnx_model.graphs.walk import describe_node

# Of these IREE has approximations in float32 alone; the linker misses a library's function, or there is no lowering.
_NOT_IN_DOUBLE = frozenset({"Acos", "Asin", "Atan", "Cos", "Erf", "Gelu", "Mish", "Sin", "Tan", "Tanh"})


def has_doubles(model: ModelProto) -> bool:
    """Whether a value is float64; in other models IREE's importer adds such numbers, which some code cannot hold."""
    return any(
        editor.element_type(name) == TensorProto.DOUBLE
        for editor in editors(model.graph)
        for node in editor.nodes
        for name in (*node.input, *node.output)
        if name
    )


def check_doubles(prepared: PreparedModel) -> None:
    """Check a model whose values of float64 are not lowered as float32.

    Raises:
        UnsupportedModelError: IREE lacks an operator in float64; the message names the node.
    """
    for editor in editors(prepared.model.graph):
        for node in editor.nodes:
            if _is_missing(node, editor):
                told = f"{describe_node(node)} computes in float64, which IREE 3.13 lacks for this operator"
                error = UnsupportedModelError(f"{told}; cast around it")
                raise naming_origins(error, prepared.described)


def _is_missing(node: NodeProto, editor: GraphEditor) -> bool:
    if node.domain or editor.element_type(node.input[0]) != TensorProto.DOUBLE:
        return False
    # A remainder with the sign of the divisor needs C's, which IREE lowers where it is asked for by itself.
    return node.op_type in _NOT_IN_DOUBLE or (node.op_type == "Mod" and not attributes(node).get("fmod", 0))
