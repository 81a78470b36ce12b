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
_SAME_RANK = frozenset({"Attention", "FusedConv", "FusedGemm", "MultiHeadAttention"})
_PRODUCTS = frozenset({"FusedMatMul", "TransposeMatMul"})
_TYPE_OF_SCALE = frozenset({"LayerNormalization", "SimplifiedLayerNormalization"})


def describe_results(model: ModelProto) -> tuple[str, ...]:
    """Describe first results whose shape or rank follows from the inputs', in models older than opset 17.

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
    if node.domain != _DOMAIN or editor.type(node.output[0]):
        return False
    if node.op_type in _PRODUCTS:
        result = _product(node, editor)
    else:
        result = _like_first(node, editor) if node.op_type in _SAME_SHAPE | _SAME_RANK else None
    if result is None:
        return False
    editor.graph.value_info.append(helper.make_value_info(node.output[0], result))
    return True


def _like_first(node: NodeProto, editor: GraphEditor) -> TypeProto | None:
    """The type of a result that has the shape or the rank of the first input; None if that is not known."""
    kind = editor.type(node.input[0])
    if kind is None or not kind.tensor_type.HasField("shape"):
        return None
    result = TypeProto.FromString(kind.SerializeToString())
    if node.op_type in _TYPE_OF_SCALE:
        result.tensor_type.elem_type = editor.element_type(node.input[1])
    for dim in result.tensor_type.shape.dim if node.op_type in _SAME_RANK else ():
        dim.Clear()
    return result if result.tensor_type.elem_type else None


def _product(node: NodeProto, editor: GraphEditor) -> TypeProto | None:
    """The type of a product of stacks of matrices, with the longer one's rank; a vector's dimension is not kept."""
    left, right = (editor.rank(name) for name in node.input[:2])
    if left is None or right is None:
        return None
    rank = max(2, left, right) - (left, right).count(1)
    return helper.make_tensor_type_proto(editor.element_type(node.input[0]), [None] * rank)
