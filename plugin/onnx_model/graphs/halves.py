"""Which types of half precision a model has: its own, and those that it had before they were widened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from onnx import AttributeProto, ModelProto, TensorProto, TypeProto

from sartor.onnx_model.graphs.walk import messages

HALVES = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
"""Element types of half precision."""

_EPS: Mapping[int, float] = {TensorProto.FLOAT16: 2.0**-10, TensorProto.BFLOAT16: 2.0**-7}
# Attributes of Cast, and of operators that create tensors, that name the element type.
_TYPE_ATTRIBUTES = frozenset({"dtype", "to"})
_RECORD = "sartor.widened"


def half_types(model: ModelProto) -> frozenset[int]:
    """The types of half precision that any value of a model has, also in subgraphs and functions, or had before it was
    widened."""
    return HALVES.intersection((*_element_types(model), *_widened(model)))


def record_widened(model: ModelProto, original: ModelProto) -> None:
    """Write to a model's metadata which types of half precision were widened, for who asks how exact it has to be."""
    for kind in sorted(half_types(original)):
        model.metadata_props.add(key=_RECORD, value=TensorProto.DataType.Name(kind))


def widened_eps(model: ModelProto) -> float:
    """The distance of 1 to the next number in the least exact type that was widened; 0 if none was."""
    return max((_EPS[kind] for kind in _widened(model)), default=0.0)


def _widened(model: ModelProto) -> list[int]:
    return [
        TensorProto.DataType.Value(metadata_prop.value)
        for metadata_prop in model.metadata_props
        if metadata_prop.key == _RECORD
    ]


def _element_types(model: ModelProto) -> Iterator[int]:
    """Element types of weights, of declared or inferred values, and in attributes of nodes."""
    for message, _ in messages(model):
        if isinstance(message, TensorProto):
            yield message.data_type
        elif isinstance(message, TypeProto.Tensor):
            yield message.elem_type
        elif isinstance(message, AttributeProto) and message.name in _TYPE_ATTRIBUTES:
            yield message.i
