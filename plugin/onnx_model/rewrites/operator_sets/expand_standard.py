"""Expands standard operators that IREE does not lower and that ONNX defines as functions of simpler operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx.inliner
from onnx import ModelProto, NodeProto, TypeProto, defs, helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.graph import GraphEditor, opset
from sartor.onnx_model.graphs.infer import infer_shapes
from sartor.onnx_model.graphs.names import name_inlined, producer_names, restore_names
from sartor.onnx_model.graphs.walk import describe_node, graphs, nodes
from sartor.onnx_model.rewrites.structure.initializers import initializers_only

# Found by running ONNX's operator tests in IREE 3.13. Operators that IREE lowers are not expanded: a
# LayerNormalization is one layer, its function body ten.
EXPANDED = (
    *("AffineGrid", "Attention", "CausalConvWithState", "CenterCropPad", "LinearAttention"),
    *("NegativeLogLikelihoodLoss", "RMSNormalization", "RotaryEmbedding", "SoftmaxCrossEntropyLoss"),
    *("SwiGLU", "Swish"),
)
PREVIEW_DOMAIN = "ai.onnx.preview"
PREVIEW = ("FlexAttention",)
"""Operators of the domain that are known."""

# Kept, but ONNX checks their types by their bodies, which read attributes that must not be left out.
_CHECKED_BY_BODY = ("MeanVarianceNormalization",)
_LOCAL_DOMAIN = "expanded"


def expand_standard(model: ModelProto) -> tuple[str, ...]:
    """Replace the operators in ``EXPANDED`` by the function bodies in the ONNX standard; needs inferred shapes."""
    for node in nodes(model.graph):
        if node.op_type in _CHECKED_BY_BODY and not node.domain:
            _write_defaults(node, opset(model))
    return _expand(model, "", EXPANDED)


def expand_preview(model: ModelProto) -> tuple[str, ...]:
    """Replace the operators in ``PREVIEW`` by their function bodies; needs inferred shapes."""
    return _expand(model, PREVIEW_DOMAIN, PREVIEW)


def _expand(model: ModelProto, domain: str, operators: tuple[str, ...]) -> tuple[str, ...]:
    called = [node for node in nodes(model.graph) if node.op_type in operators and node.domain == domain]
    changed, names = tuple(node.name for node in called), producer_names(model)
    callers = {output: node.name for node in called for output in node.output if output}
    if not called:
        return ()
    versions = {item.domain: item.version for item in model.opset_import}
    for node in called:
        _write_defaults(node, versions[domain])
    infer_shapes(model)
    _describe_constants(model)
    wanted = [(domain, name) for name in operators]
    _make_local([node for node in called if "" in node.input], model, versions[domain])
    try:
        inlined = onnx.inliner.inline_selected_functions(model, wanted, inline_schema_functions=True)
        if inlined.functions:
            inlined = onnx.inliner.inline_local_functions(inlined, convert_version=True)
    except RuntimeError as error:
        raise UnsupportedModelError(
            f"{describe_node(called[0])} or another operator that is a function in ONNX cannot be expanded, "
            "because the types of its inputs are not known"
        ) from error
    model.CopyFrom(inlined)
    name_inlined(model, callers)
    kept = [item for item in model.opset_import if item.domain != _LOCAL_DOMAIN]
    del model.opset_import[:]
    model.opset_import.extend(kept)
    initializers_only(model)
    restore_names(model, names)
    infer_shapes(model)
    return changed


def _write_defaults(node: NodeProto, version: int) -> None:
    """Set attributes to their defaults: the inliner would leave references to attributes that are not set empty."""
    present = {attribute.name for attribute in node.attribute}
    for name, attribute in defs.get_schema(node.op_type, version, node.domain).attributes.items():
        if name not in present and attribute.default_value.name:
            node.attribute.append(attribute.default_value)


def _make_local(called: Sequence[NodeProto], model: ModelProto, version: int) -> None:
    """Give nodes functions of the model's own: the inliner knows no body of operators whose operands are left out."""
    editor = GraphEditor(model.graph)
    for number, node in enumerate(called):
        # The stubs leave its functions out.
        schema: Any = defs.get_schema(node.op_type, version, node.domain)
        body = onnx.FunctionProto()
        if fitting := [stated for stated in schema.context_dependent_function_opset_versions if stated <= version]:
            types = [(editor.type(name) or TypeProto()).SerializeToString() for name in node.input]
            content = node.SerializeToString()
            body.ParseFromString(schema.get_context_dependent_function_with_opset_version(max(fitting), content, types))
        else:
            fitting = [
                function_opset_version
                for function_opset_version in schema.function_opset_versions
                if function_opset_version <= version
            ]
            body.ParseFromString(schema.get_function_with_opset_version(max(fitting)))
        body.name, body.domain = f"{node.op_type}{number}", _LOCAL_DOMAIN
        declared = {*body.attribute, *(default.name for default in body.attribute_proto)}
        body.attribute.extend(attribute.name for attribute in node.attribute if attribute.name not in declared)
        model.functions.append(body)
        node.op_type, node.domain = body.name, body.domain
    if called:
        model.opset_import.append(helper.make_opsetid(_LOCAL_DOMAIN, 1))


def _describe_constants(model: ModelProto) -> None:
    """Describe constants as values: function bodies depend on types, which the inliner takes from descriptions."""
    for graph in graphs(model):
        known = {value.name for value in (*graph.value_info, *graph.input)}
        for tensor in graph.initializer:
            if tensor.name not in known:
                value = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
                graph.value_info.append(value)
