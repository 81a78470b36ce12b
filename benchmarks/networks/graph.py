"""An ONNX graph under construction: nodes, seeded parameters, constants, and names scoped as modules are."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
IR_VERSION = 8

Shape = tuple[int, ...]


def header(version: str) -> onnx.ModelProto:
    """Return the fields that come first in the file of every model; `version` is the producer's."""
    return onnx.ModelProto(ir_version=IR_VERSION, producer_name="sartor-zoo", producer_version=version)


class Graph:
    """Collects the parts of one model.

    Every random tensor has a generator of its own, seeded by `seed` and its name: a change to one layer leaves the
    numbers drawn for the others. With `weights=False` parameters are graph inputs instead of initializers, which
    gives a model of a few kilobytes whose shapes can still be checked.
    """

    def __init__(self, name: str, *, version: str, batch: int, seed: int, weights: bool) -> None:
        self.name = name
        self.batch = batch
        self._seed = seed
        self.has_weights = weights
        self._model = header(version)
        self._model.opset_import.append(helper.make_opsetid("", OPSET))
        self._model.graph.name = name
        self._scopes: list[str] = []
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._parameters: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._values: dict[str, onnx.ValueInfoProto] = {}

    @contextmanager
    def scope(self, name: str | int) -> Iterator[None]:
        """Prefix the names of what is added inside with `name` and a dot."""
        self._scopes.append(str(name))
        try:
            yield
        finally:
            self._scopes.pop()

    def qualified(self, name: str) -> str:
        """Return `name` behind the names of the scopes around it."""
        return ".".join([*self._scopes, name])

    def rng(self, name: str) -> np.random.Generator:
        """Return the generator that belongs to `name` in the current scope."""
        key = zlib.crc32(f"{self.name}/{self.qualified(name)}".encode())
        return np.random.default_rng([self._seed, key])

    def input(self, name: str, shape: Shape, element_type: int = TensorProto.FLOAT) -> str:
        """Declare a graph input and return its name."""
        self._inputs.append(helper.make_tensor_value_info(name, element_type, shape))
        return name

    def draw(self, name: str, shape: Shape, std: float) -> NDArray[np.float32]:
        """Return values from N(0, std²); without weights a view of one zero, which takes no memory."""
        if not self.has_weights:
            return np.broadcast_to(np.float32(0), shape)
        values = self.rng(name).standard_normal(shape, dtype=np.float32)
        values *= np.float32(std)
        return values

    def parameter(self, name: str, values: NDArray[Any]) -> str:
        """Add a parameter with the given values, stored as f32, and return its name."""
        if not self.has_weights:
            return self._declare(name, values.shape)
        return self.constant(name, values.astype(np.float32, copy=False))

    def constant(self, name: str, values: NDArray[Any]) -> str:
        """Add an initializer that is part of the architecture, such as a shape, and return its name."""
        # Straight into the model: every further copy of VGG's weights costs a second.
        self._model.graph.initializer.append(numpy_helper.from_array(values, self.qualified(name)))
        return self.qualified(name)

    def node(
        self,
        op_type: str,
        name: str,
        inputs: Sequence[str],
        shapes: Sequence[Shape],
        element_type: int = TensorProto.FLOAT,
        **attributes: Any,
    ) -> list[str]:
        """Add a node whose outputs have the given shapes, and return the outputs' names."""
        full = self.qualified(name)
        outputs = [full] if len(shapes) == 1 else [f"{full}.{index}" for index in range(len(shapes))]
        self._nodes.append(helper.make_node(op_type, inputs, outputs, name=full, **attributes))
        for output, shape in zip(outputs, shapes, strict=True):
            self._values[output] = helper.make_tensor_value_info(output, element_type, shape)
        return outputs

    def output(self, value: str, name: str) -> None:
        """Make `value` an output of the graph, known as `name` from outside."""
        info = self._values.pop(value)
        info.name = name
        self._outputs.append(info)
        for node in self._nodes:
            node.input[:] = [name if used == value else used for used in node.input]
            node.output[:] = [name if made == value else made for made in node.output]

    def model(self) -> onnx.ModelProto:
        """Return the finished model; nothing can be added afterwards."""
        graph = self._model.graph
        graph.node.extend(self._nodes)
        graph.input.extend([*self._inputs, *self._parameters])
        graph.output.extend(self._outputs)
        graph.value_info.extend(self._values.values())
        return self._model

    def _declare(self, name: str, shape: Shape) -> str:
        full = self.qualified(name)
        self._parameters.append(helper.make_tensor_value_info(full, TensorProto.FLOAT, shape))
        return full


Body = Callable[[Graph], None]


def assemble(
    name: str, body: Body, *, version: str, batch: int = 1, seed: int = 0, weights: bool = True
) -> onnx.ModelProto:
    """Return the model that `body` describes; `version` is recorded as its producer's version."""
    graph = Graph(name, version=version, batch=batch, seed=seed, weights=weights)
    body(graph)
    return graph.model()
