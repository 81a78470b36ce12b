"""What the rewrites of this room share: counted values, sizes that are known when a model runs, and emitting nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import NodeProto, OperatorSetIdProto, TensorProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, static_shape
from sartor.onnx_model.graphs.infer import infer_node
from sartor.onnx_model.graphs.walk import describe_node

_MOST_ELEMENTS = 1 << 22


@dataclass(frozen=True)
class Count:
    """A number of elements that is known when the model runs.

    Attributes:
        name: of the value, an int64 scalar.
        bound: the largest number that it may be.
    """

    name: str
    bound: int


@dataclass(frozen=True)
class Counted:
    """A tensor of static shape of which only the first elements along one axis are valid.

    The others have any value, and nothing may depend on them.

    Attributes:
        axis: the axis, which is not negative.
        count: how many elements along it are valid; its bound is the static size of the axis.
    """

    axis: int
    count: Count


Size = int | Count


@dataclass
class Tail:
    """A graph while its values of dynamic shape are replaced.

    Attributes:
        editor: of the graph; it knows the types of the nodes that were emitted.
        version: the standard operator set.
        counted: the counted values by name.
        sizes: elements of small integer values that are computed from shapes, by name, in row-major order.
        true_elements: how many elements of a value are not 0, where these are selected.
        lengths: how many elements slices have, by their bounds and the size of what is sliced: each a number, or the
            value that is known when the model runs and an index in it.
    """

    editor: GraphEditor
    version: OperatorSetIdProto
    counted: dict[str, Counted] = field(default_factory=dict)
    sizes: dict[str, tuple[Size, ...]] = field(default_factory=dict)
    true_elements: dict[str, Count] = field(default_factory=dict)
    lengths: dict[tuple[tuple[str, int], ...], str] = field(default_factory=dict)

    def infer(self, node: NodeProto) -> None:
        """Note the types of a node's outputs."""
        for name, value in infer_node(node, self.editor, self.version).items():
            # Of a loop's results more may be known from its body than inference tells.
            if name and (static_shape(value) is not None or self.editor.shape(name) is None):
                self.editor.set_type(name, value)


class Steps(Emitter):
    """Emits the nodes that replace one node, and knows the shapes of what they compute."""

    def __init__(self, tail: Tail, node: NodeProto) -> None:
        super().__init__(tail.editor, node)
        self.tail = tail
        self._is_named = False

    def many(
        self, operator: str, *inputs: str, part: str = "", outputs: tuple[str, ...], domain: str = "", **attributes: Any
    ) -> tuple[str, ...]:
        """As of ``Emitter``; only the first node that computes an output of the replaced one has its name."""
        is_main = not part and not self._is_named and any(outputs)
        self._is_named |= is_main
        named = part or ("" if is_main else operator)
        names = super().many(operator, *inputs, part=named, outputs=outputs, domain=domain, **attributes)
        self.tail.infer(self.nodes[-1])
        return names

    def keep(self, inputs: Sequence[str] | None = None) -> None:
        """Emit the node itself, with other inputs if they are given."""
        copy = NodeProto()
        copy.CopyFrom(self.node)
        if inputs is not None:
            copy.input[:] = inputs
        self.nodes.append(copy)
        self.tail.infer(copy)

    def shape(self, name: str) -> tuple[int, ...]:
        """The static shape of a value.

        Raises:
            UnsupportedModelError: if it is not known.
        """
        shape = self.editor.shape(name)
        if shape is None:
            raise self.refusal(f"the shape of '{name}' is not known before it runs")
        return shape

    def refusal(self, reason: str) -> UnsupportedModelError:
        """The error for a node that cannot be computed with static shapes."""
        return UnsupportedModelError(
            f"{describe_node(self.node)} is not supported: {reason}; end the model before this node, and compute the "
            "rest outside, or fix what the size depends on with --bind"
        )

    def integers(self, *values: int) -> str:
        """A constant int64 vector."""
        return self.shared_constant(np.array(values, np.int64), "integers")

    def scalar(self, value: int) -> str:
        """A constant int64 scalar."""
        return self.shared_constant(np.array(value, np.int64), "integer")

    def iota(self, size: int, rank: int = 1, axis: int = 0) -> str:
        """The numbers from 0 along an axis, in a shape that broadcasts to ``rank`` dimensions."""
        self.check_length(size)
        shape = [1] * rank
        shape[axis] = size
        return self.shared_constant(np.arange(size, dtype=np.int64).reshape(shape), f"iota{rank}{axis}")

    def check_length(self, size: int) -> None:
        """Refuse values of more elements than are worth selecting from, as the module would hold their indices.

        Raises:
            UnsupportedModelError: if there are more.
        """
        if size > _MOST_ELEMENTS:
            raise self.refusal(f"it selects from {size} elements, and {_MOST_ELEMENTS} are the most")

    def cast(self, value: str, element: int) -> str:
        """A value in another element type."""
        return value if self.editor.element_type(value) == element else self("Cast", value, to=element)

    def as_scalar(self, value: str) -> str:
        """A single integer as an int64 scalar."""
        wide = self.cast(value, TensorProto.INT64)
        return wide if self.editor.shape(wide) == () else self("Reshape", wide, self.constant([], "scalar"))

    def reshaped(self, value: str, *shape: int, output: str = "") -> str:
        """A value in another static shape."""
        return self("Reshape", value, self.integers(*shape), output=output)

    def valid(self, counted: Counted, rank: int, size: int) -> str:
        """Which indices along the axis of a counted value of ``rank`` dimensions are valid, as booleans."""
        return self("Less", self.iota(size, rank, counted.axis), counted.count.name)

    def masked(self, value: str, fill: Array | float) -> str:
        """A value with ``fill`` in the elements that are not valid; the value itself if it is not counted."""
        counted = self.tail.counted.get(value)
        if counted is None:
            return value
        shape = self.shape(value)
        filling = self.constant(np.asarray(fill, self.dtype(value)), "fill")
        return self("Where", self.valid(counted, len(shape), shape[counted.axis]), value, filling)

    def count(self, name: str, bound: int) -> Count:
        """The count in a single integer."""
        return Count(self.as_scalar(name), bound)

    def set_counted(self, name: str, axis: int, count: Count) -> None:
        """Note that an output of the node is counted. An axis of another size than the bound has that as its bound."""
        size = self.shape(name)[axis]
        self.tail.counted[name] = Counted(axis, Count(count.name, size))
