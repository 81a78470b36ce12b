"""What ONNX's inference knows about the operands of a node, in the words of shape rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, TypeProto, defs, helper, numpy_helper, shape_inference

Size = int | str | None
"""A dimension: its number, its symbol, or None if nothing is known."""
Shape = Sequence[Size] | None
Array = np.ndarray[Any, Any]
_OPSET = 13


class Operands:
    """The operands and attributes of a node."""

    def __init__(self, context: Any) -> None:
        """Read them from an ``onnx.shape_inference.InferenceContext``."""
        self._context = context
        self.count = int(context.get_num_inputs())

    def type(self, index: int) -> TypeProto | None:
        """The type of an operand; None if it is left out or unknown."""
        kind = self._context.get_input_type(index) if index < self.count else None
        return kind if isinstance(kind, TypeProto) and kind.HasField("tensor_type") else None

    def kind(self, index: int) -> int:
        """The element type of an operand; 0 if it is left out or unknown."""
        kind = self.type(index)
        return int(kind.tensor_type.elem_type) if kind else 0

    def shape(self, index: int) -> list[Size] | None:
        """The dimensions of an operand; None if it is left out or its rank is unknown."""
        return sizes(self.type(index))

    def values(self, index: int) -> Array | None:
        """The values of a constant operand."""
        data = self._context.get_input_data(index) if index < self.count else None
        return numpy_helper.to_array(data) if isinstance(data, TensorProto) else None

    def attribute(self, name: str, default: Any = None) -> Any:
        """The value of an attribute; text decoded."""
        item = self._context.get_attribute(name)
        if item is None:
            return default
        value = helper.get_attribute_value(item)
        return value.decode(errors="replace") if isinstance(value, bytes) else value


def sizes(kind: TypeProto | None) -> list[Size] | None:
    """The dimensions of a tensor type; None if its rank is unknown."""
    if kind is None or not kind.tensor_type.HasField("shape"):
        return None
    return [_size(dim) for dim in kind.tensor_type.shape.dim]


def _size(dim: Any) -> Size:
    return int(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or None


def known(*numbers: Size) -> list[int] | None:
    """The sizes if all of them are numbers."""
    result = [number for number in numbers if isinstance(number, int)]
    return result if len(result) == len(numbers) else None


def total(*numbers: Size) -> Size:
    """The sum of sizes; None unless all of them are numbers."""
    values = known(*numbers)
    return None if values is None else sum(values)


def times(*numbers: Size) -> Size:
    """The product of sizes; None unless all of them are numbers."""
    values = known(*numbers)
    return None if values is None else math.prod(values)


def standard(
    operator: str,
    shapes: Sequence[Shape],
    attributes: Mapping[str, Any] | None = None,
    data: Mapping[int, Array] | None = None,
    opset: int = _OPSET,
    indices: Sequence[int] = (),
) -> Shape:
    """The shape of the first result of a standard operator; None if ONNX's inference does not know it.

    Args:
        operator: its name.
        shapes: of its operands in order.
        attributes: those that are not None.
        data: values of 64-bit integer operands, by their index.
        opset: of the operator.
        indices: the operands that are 64-bit integers.
    """
    values = data or {}
    if any(shape is None and index not in values for index, shape in enumerate(shapes)):
        return None
    names = [f"operand{index}" for index in range(len(shapes))]
    given = {key: value for key, value in (attributes or {}).items() if value is not None}
    node: NodeProto = helper.make_node(operator, names, ["result"], **given)
    types = {
        name: helper.make_tensor_type_proto(
            TensorProto.INT64 if index in (*values, *indices) else TensorProto.FLOAT,
            values[index].shape if index in values else shapes[index],
        )
        for index, name in enumerate(names)
    }
    tensors = {names[index]: numpy_helper.from_array(value.astype(np.int64)) for index, value in values.items()}
    schema = defs.get_schema(operator, opset, "")
    imports = [helper.make_opsetid("", opset)]
    inferred = shape_inference.infer_node_outputs(schema, node, types, tensors, opset_imports=imports)
    return sizes(inferred.get("result"))


Rule = Callable[[Operands], Sequence[Shape]]
"""Computes the shapes of results, in order; those that it leaves out are unknown."""
