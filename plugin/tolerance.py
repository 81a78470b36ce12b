"""How far a correct module may be from ONNX Runtime: what rounding of the model's own types allows."""

from __future__ import annotations

from collections.abc import Iterator

from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, TypeProto

from sartor.onnx_model.walk import messages, nodes

# docs/accuracy.md derives these bounds.
_HALF_PRECISION = 3e-2
_QUANTISED = 5e-2
_INTEGER_OPS = frozenset(
    {"ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "QuantizeLinear"}
)
_INTEGER_PREFIX = "QLinear"
_HALF = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
# Attributes of Cast, and of operators that make tensors, that say what they make.
_TYPE_ATTRIBUTES = frozenset({"dtype", "to"})


def tolerance(model: ModelProto, max_error: float, *, is_quantised: bool = False) -> float:
    """The larger of what the user allows and what the model's own element types round off.

    Args:
        model: the original or the prepared one; what its subgraphs and functions hold counts too.
        max_error: relative error of the largest output that the user allows.
        is_quantised: whether the model was quantised before it was prepared.
    """
    if is_quantised or any(_is_quantised(node) for node in nodes(model)):
        return max(max_error, _QUANTISED)
    if not _HALF.isdisjoint(_element_types(model)):
        return max(max_error, _HALF_PRECISION)
    return max_error


def _is_quantised(node: NodeProto) -> bool:
    return node.op_type in _INTEGER_OPS or node.op_type.startswith(_INTEGER_PREFIX)


def _element_types(model: ModelProto) -> Iterator[int]:
    """Element types of weights, of declared or inferred values, and of what nodes are told to make."""
    for message, _ in messages(model):
        if isinstance(message, TensorProto):
            yield message.data_type
        elif isinstance(message, TypeProto.Tensor):
            yield message.elem_type
        elif isinstance(message, AttributeProto) and message.name in _TYPE_ATTRIBUTES:
            yield message.i
