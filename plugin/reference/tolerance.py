"""How far a correct module may be from ONNX Runtime: what rounding of the model's own types allows."""

from __future__ import annotations

from collections.abc import Iterator

from onnx import AttributeProto, ModelProto, TensorProto, TypeProto

from sartor.onnx_model.graphs.walk import messages

# docs/accuracy.md derives what is allowed.
_HALF_PRECISION = 3e-2
# What was measured on a few samples may be somewhat more on others, whose outputs are smaller.
_OTHER_SAMPLES = 1.5
_HALF = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
# Attributes of Cast, and of operators that make tensors, that say what they make.
_TYPE_ATTRIBUTES = frozenset({"dtype", "to"})


def tolerance(model: ModelProto, max_error: float, tie_spread: float = 0.0) -> float:
    """The larger of what the user allows and what the model's own element types round off.

    Args:
        model: the original or the prepared one; what its subgraphs and functions hold counts too.
        max_error: relative error of the largest output that the user allows.
        tie_spread: what ``near_ties`` measured of a model that rounds to integers.
    """
    allowed = max(max_error, _OTHER_SAMPLES * tie_spread)
    return allowed if _HALF.isdisjoint(_element_types(model)) else max(allowed, _HALF_PRECISION)


def _element_types(model: ModelProto) -> Iterator[int]:
    """Element types of weights, of declared or inferred values, and of what nodes are told to make."""
    for message, _ in messages(model):
        if isinstance(message, TensorProto):
            yield message.data_type
        elif isinstance(message, TypeProto.Tensor):
            yield message.elem_type
        elif isinstance(message, AttributeProto) and message.name in _TYPE_ATTRIBUTES:
            yield message.i
