"""Describes results of ONNX Runtime's operators, which ONNX's shape inference skips: old operators need their ranks."""

from __future__ import annotations

from onnx import ModelProto, NodeProto, TypeProto, helper

from sartor.onnx_model.graphs.graph import GraphEditor, editors, opset
from sartor.onnx_model.graphs.infer import infer_shapes

_DOMAIN = "com.microsoft"
_NEWEST_OLD_OPSET = 16
_SAME_SHAPE = frozenset(
    {
        *("BiasAdd", "BiasGelu", "FastGelu", "Gelu", "LayerNormalization", "QuickGelu", "SimplifiedLayerNormalization"),
        *("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"),
    }
)
_SAME_RANK = frozenset({"Attention", "FusedConv", "FusedGemm", "FusedMatMul", "MultiHeadAttention", "TransposeMatMul"})


def describe_results(model: ModelProto) -> tuple[str, ...]:
    """Describe first results that have the shape or the rank of the first input, in models older than opset 17.

    Returns:
        The names of the nodes whose result was described.
    """
    if opset(model) > _NEWEST_OLD_OPSET or all(item.domain != _DOMAIN for item in model.opset_import):
        return ()
    described: list[str] = []
    while True:
        infer_shapes(model)
        new = [node.name for editor in editors(model.graph) for node in editor.nodes if _describe(node, editor)]
        described.extend(new)
        if not new:
            return tuple(described)


def _describe(node: NodeProto, editor: GraphEditor) -> bool:
    """Whether the first result was not described, and now is."""
    if node.domain != _DOMAIN or node.op_type not in _SAME_SHAPE | _SAME_RANK or editor.type(node.output[0]):
        return False
    kind = editor.type(node.input[0])
    if kind is None or not kind.tensor_type.HasField("shape"):
        return False
    result = TypeProto.FromString(kind.SerializeToString())
    for dim in result.tensor_type.shape.dim if node.op_type in _SAME_RANK else ():
        dim.Clear()
    editor.graph.value_info.append(helper.make_value_info(node.output[0], result))
    return True
