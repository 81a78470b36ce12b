"""Expands standard operators that IREE does not lower and that ONNX defines as functions of simpler operators."""

from __future__ import annotations

import onnx.inliner
from onnx import ModelProto, NodeProto, defs, helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.graph import opset
from sartor.onnx_model.graphs.infer import infer_shapes
from sartor.onnx_model.graphs.names import producer_names, restore_names
from sartor.onnx_model.graphs.walk import describe_node, graphs, nodes
from sartor.onnx_model.rewrites.structure.initializers import initializers_only

# Found by running ONNX's operator tests in IREE 3.13. Operators that IREE lowers are not expanded: a
# LayerNormalization is one layer, its function body ten.
EXPANDED = (
    *("Attention", "CausalConvWithState", "LinearAttention", "NegativeLogLikelihoodLoss"),
    *("RMSNormalization", "RotaryEmbedding", "SoftmaxCrossEntropyLoss", "SwiGLU", "Swish"),
)


def expand_standard(model: ModelProto) -> tuple[str, ...]:
    """Replace the operators in ``EXPANDED`` by their function bodies in the ONNX standard; returns the nodes' names.

    Raises:
        UnsupportedModelError: the types of an operator's inputs are unknown.
    """
    called = [node for node in nodes(model.graph) if node.op_type in EXPANDED and not node.domain]
    changed, names = tuple(node.name for node in called), producer_names(model)
    if not called:
        return ()
    for node in called:
        _write_defaults(node, opset(model))
    infer_shapes(model)
    _describe_constants(model)
    wanted = [("", name) for name in EXPANDED]
    try:
        inlined = onnx.inliner.inline_selected_functions(model, wanted, inline_schema_functions=True)
    except RuntimeError as error:
        raise UnsupportedModelError(
            f"{describe_node(called[0])} or another operator that is a function in ONNX cannot be expanded, "
            "because the types of its inputs are not known"
        ) from error
    model.CopyFrom(inlined)
    initializers_only(model)
    restore_names(model, names)
    infer_shapes(model)
    return changed


def _write_defaults(node: NodeProto, version: int) -> None:
    """Set attributes to their defaults: the inliner would leave references to attributes that are not set empty."""
    present = {attribute.name for attribute in node.attribute}
    for name, attribute in defs.get_schema(node.op_type, version, "").attributes.items():
        if name not in present and attribute.default_value.name:
            node.attribute.append(attribute.default_value)


def _describe_constants(model: ModelProto) -> None:
    """Describe constants as values: function bodies depend on types, which the inliner takes from descriptions."""
    for graph in graphs(model):
        known = {value.name for value in (*graph.value_info, *graph.input)}
        for tensor in graph.initializer:
            if tensor.name not in known:
                value = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
                graph.value_info.append(value)
