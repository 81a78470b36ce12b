"""Unsigned copies of a graph's signed 8-bit values: each number is 128 more, and so is the zero point."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper

from sartor.onnx_model.graphs.graph import Array, GraphEditor
from sartor.onnx_model.graphs.tensor_data import to_array
from sartor.reference.trusted.exact.stored_values import StoredValues

_OFFSET = 128


class UnsignedValues:
    """Adds unsigned copies of signed values to one graph, each once.

    Args:
        editor: of the graph.
        stored: the values of initialisers.
    """

    def __init__(self, editor: GraphEditor, stored: StoredValues) -> None:
        self._editor = editor
        self._stored = stored
        self._copies: dict[str, str] = {}
        self.replaced: set[str] = set()
        """Names of signed constants that have unsigned copies."""

    def reserve(self, signed: str) -> str:
        """The name of the unsigned copy of a value whose producer will write it."""
        self._copies[signed] = self._editor.fresh(f"{signed}/unsigned")
        return self._copies[signed]

    def of(self, signed: str, nodes: list[NodeProto]) -> str:
        """The name of the unsigned copy of a value; nodes that compute it are added to ``nodes``."""
        if signed not in self._copies:
            values = self._constant(signed)
            if values is None:
                self._copies[signed] = self._editor.fresh(f"{signed}/unsigned")
                nodes.extend(self._moved(signed, self._copies[signed], "Add", TensorProto.UINT8))
            else:
                self.replaced.add(signed)
                self._copies[signed] = self._editor.add_constant(f"{signed}/unsigned", _unsigned(values))
        return self._copies[signed]

    def zero_like(self, scale: str, nodes: list[NodeProto]) -> str:
        """The name of an unsigned zero point for signed values without one, in the shape of their scale."""
        values = self._constant(scale)
        if values is not None:
            return self._editor.add_constant(f"{scale}/zero", np.full(values.shape, _OFFSET, np.uint8))
        shape, zero = self._editor.fresh(f"{scale}/shape"), self._editor.fresh(f"{scale}/zero")
        filled = helper.make_tensor("value", TensorProto.UINT8, [1], [_OFFSET])
        nodes.append(self._node("Shape", [scale], shape))
        nodes.append(self._node("ConstantOfShape", [shape], zero, value=filled))
        return zero

    def zero(self) -> str:
        """The name of an unsigned zero point for signed values without one, a scalar."""
        return self._editor.add_constant("zero/unsigned", np.array(_OFFSET, np.uint8))

    def signed_again(self, signed: str) -> list[NodeProto]:
        """The nodes that compute a value from its unsigned copy."""
        return self._moved(self._copies[signed], signed, "Sub", TensorProto.INT8)

    def _constant(self, name: str) -> Array | None:
        tensor = self._editor.tensor(name)
        if tensor is not None:
            return self._stored(tensor)
        node = self._editor.producer(name)
        if node is None or node.op_type != "Constant" or node.domain:
            return None
        return next((to_array(attribute.t) for attribute in node.attribute if attribute.name == "value"), None)

    def _moved(self, source: str, result: str, operator: str, kind: int) -> list[NodeProto]:
        # Through 32 bits, as older operator sets have no sums of 8 bits.
        wide, moved = (self._editor.fresh(f"{result}/{part}") for part in ("wide", "moved"))
        offset = self._editor.add_constant(f"{result}/offset", np.array(_OFFSET, np.int32))
        return [
            self._node("Cast", [source], wide, to=TensorProto.INT32),
            self._node(operator, [wide, offset], moved),
            self._node("Cast", [moved], result, to=kind),
        ]

    def _node(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> NodeProto:
        return helper.make_node(operator, inputs, [output], self._editor.fresh_node(output), **attributes)


def _unsigned(values: Array) -> Array:
    return (values.astype(np.int16) + _OFFSET).astype(np.uint8)
