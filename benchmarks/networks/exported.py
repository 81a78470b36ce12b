"""Builds models as exporters write them: sizes may have names, and bodies are plain operators with seeded weights."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from benchmarks.networks.graph import IR_VERSION, OPSET

Dims = Sequence[int | str]


class Exported:
    """A model under construction: a call adds an operator, and gives the name of its output.

    Args:
        name: of the graph.
        seed: of the weights.
    """

    def __init__(self, name: str, seed: int = 0) -> None:
        self._name, self._seed = name, seed
        self.begin(name)
        self._nodes: list[NodeProto] = []
        self._held: list[TensorProto] = []
        self._inputs: list[ValueInfoProto] = []
        self._outputs: list[ValueInfoProto] = []

    def __call__(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        return self.several(operator, *inputs, outputs=(output,), **attributes)[0]

    def several(self, operator: str, *inputs: str, outputs: Sequence[str], **attributes: Any) -> list[str]:
        """Add an operator with several outputs, of which those without a name get one."""
        name = f"{operator}_{len(self._nodes)}"
        made = [each or f"{name}_output_{index}" for index, each in enumerate(outputs)]
        self._nodes.append(helper.make_node(operator, inputs, made, name=name, **attributes))
        return made

    def begin(self, part: str) -> None:
        """Draw weights of a part, which are the same in any model that has it."""
        self.random = np.random.default_rng([self._seed, zlib.crc32(part.encode())])

    def input(self, name: str, dims: Dims, kind: int = TensorProto.FLOAT) -> str:
        """Declare an input; returns its name."""
        self._inputs.append(helper.make_tensor_value_info(name, kind, dims))
        return name

    def output(self, name: str, dims: Dims) -> None:
        """Declare an output."""
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, dims))

    def hold(self, values: Any, kind: type[np.generic] = np.float32) -> str:
        """A constant; returns its name."""
        self._held.append(numpy_helper.from_array(np.asarray(values, kind), f"held_{len(self._held)}"))
        return self._held[-1].name

    def numbers(self, *values: int) -> str:
        """Whole numbers, as shapes and axes are."""
        return self.hold(values, np.int64)

    def whole(self, value: int) -> str:
        """A single whole number."""
        return self.hold(value, np.int64)

    def drawn(self, *shape: int, spread: float = 1.0) -> NDArray[np.float32]:
        """Weights of N(0, spread²)."""
        values = self.random.standard_normal(shape, dtype=np.float32)
        return values * np.float32(spread)

    def linear(self, x: str, inputs: int, features: int, *, gain: float = 1.0, bias: bool = True) -> str:
        """MatMul, and Add of a bias."""
        y = self("MatMul", x, self.hold(self.drawn(inputs, features, spread=gain / math.sqrt(inputs))))
        return self("Add", y, self.hold(self.drawn(features, spread=0.1))) if bias else y

    def conv(self, x: str, inputs: int, channels: int, *kernel: int, gain: float = 1.4, **attributes: Any) -> str:
        """Conv with a bias, of one or two dimensions."""
        within = inputs // attributes.get("group", 1)
        weight = self.drawn(channels, within, *kernel, spread=gain / math.sqrt(within * math.prod(kernel)))
        return self("Conv", x, self.hold(weight), self.hold(self.drawn(channels, spread=0.1)), **attributes)

    def transposed(self, x: str, inputs: int, channels: int, *kernel: int, gain: float = 1.0, **attributes: Any) -> str:
        """ConvTranspose with a bias."""
        within = channels // attributes.get("group", 1)
        weight = self.drawn(inputs, within, *kernel, spread=gain / math.sqrt(inputs))
        return self("ConvTranspose", x, self.hold(weight), self.hold(self.drawn(channels, spread=0.1)), **attributes)

    def norm(self, x: str, width: int) -> str:
        """LayerNormalization of the last axis."""
        scale = self.random.uniform(0.7, 1.3, width)
        return self("LayerNormalization", x, self.hold(scale), self.hold(self.drawn(width, spread=0.1)), axis=-1)

    def recurrent(self, operator: str, x: str, inputs: int, hidden: int, states: Sequence[str]) -> list[str]:
        """An LSTM or a GRU in PyTorch's form with initial states: all states, and the last ones."""
        gates = {"LSTM": 4, "GRU": 3}[operator]
        weights = [
            self.hold(self.drawn(1, gates * hidden, size, spread=1 / math.sqrt(size))) for size in (inputs, hidden)
        ]
        bias = self.hold(self.drawn(1, 2 * gates * hidden, spread=0.1))
        kind: dict[str, Any] = {"linear_before_reset": 1} if operator == "GRU" else {}
        outputs = [""] * (1 + len(states))
        return self.several(operator, x, *weights, bias, "", *states, outputs=outputs, hidden_size=hidden, **kind)

    def model(self) -> onnx.ModelProto:
        """The finished model."""
        graph = helper.make_graph(self._nodes, self._name, self._inputs, self._outputs, self._held)
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="sartor-zoo")
