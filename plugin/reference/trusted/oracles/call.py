"""One execution of a node, as the definition of its operator sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from onnx import NodeProto, helper

from sartor.runtime.driver.signature import Array


@dataclass(frozen=True)
class Call:
    """A node with the values it reads.

    Attributes:
        node: the node.
        inputs: a value for each input; None for one that is left out.
        version: of the operator set of its domain.
        types: the element type (``TensorProto.DataType``) of each output; None where it is not known.
    """

    node: NodeProto
    inputs: Sequence[Array | None]
    version: int
    types: Sequence[int | None] = ()

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """Values of the attributes that the node has."""
        return {attribute.name: helper.get_attribute_value(attribute) for attribute in self.node.attribute}

    def number(self, name: str, default: float) -> float:
        """A number among the attributes."""
        return float(self.attributes.get(name, default))

    def whole(self, name: str, default: int) -> int:
        """A whole number among the attributes."""
        return int(self.attributes.get(name, default))

    def text(self, name: str, default: str = "") -> str:
        """A text among the attributes."""
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else str(value)

    def input(self, index: int) -> Array | None:
        """The value of an input; None if it is left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def given(self, index: int) -> Array:
        """The value of an input that a valid node has.

        Raises:
            ValueError: if it is left out.
        """
        value = self.input(index)
        if value is None:
            raise ValueError(f"input {index} of {self.node.op_type} is missing")
        return value

    def wide(self, index: int) -> Array:
        """The value of an input that a valid node has, in float64."""
        return self.given(index).astype(np.float64)

    def wide_or(self, index: int, default: float) -> Array:
        """The value of an input in float64, or a scalar if it is left out."""
        value = self.input(index)
        return np.asarray(default, np.float64) if value is None else value.astype(np.float64)


Definition = Callable[[Call], list[Array]]
"""Computes the outputs of a node from the definition of its operator, all that the operator has, in its order."""
