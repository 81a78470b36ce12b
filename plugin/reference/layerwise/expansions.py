"""Operators on quantised tensors by their definition: dequantised operands, the operator on reals, and rounding.

These are QLinearConv and QLinearMatMul of ONNX, and those that onnxruntime's tools write in the domain
com.microsoft (its ContribOperators.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from onnx import NodeProto, TensorProto, helper

from sartor.onnx_model.graphs.graph import attributes, optional_input


@dataclass
class _Writer:
    """Collects the nodes that define one node."""

    node: NodeProto
    nodes: list[NodeProto] = field(default_factory=list)

    def op(self, operator: str, inputs: Sequence[str], output: str = "", **given: Any) -> str:
        """A node; returns the name of its result."""
        result = output or f"{self.node.output[0]}/{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [result], name=self.node.name, **given))
        return result

    def real(self, first: int, axis: int = 1) -> str:
        """The dequantised operand whose integers, scale and zero point are the inputs from ``first`` on."""
        names = [name for index in range(3) if (name := optional_input(self.node, first + index))]
        return self.op("DequantizeLinear", names, axis=axis)

    def stored(self, number: str, scale: int) -> None:
        """The node's result: a number quantised by the inputs from ``scale`` on."""
        names = [name for index in range(2) if (name := optional_input(self.node, scale + index))]
        self.op("QuantizeLinear", [number, *names], self.node.output[0])

    def bias(self, index: int, scales: Sequence[int], factor: float = 1.0) -> list[str]:
        """The bias in 32-bit integers at an input, if there is one, times the scales of both factors."""
        name = optional_input(self.node, index)
        if not name:
            return []
        whole = self.op("Cast", [name], to=TensorProto.FLOAT)
        scale = self.op("Mul", [self.node.input[each] for each in scales])
        if factor != 1.0:
            scale = self.op("Mul", [scale, self.op("Constant", [], value_float=factor)])
        return [self.op("Mul", [whole, scale])]


def definition(node: NodeProto) -> list[NodeProto] | None:
    """Nodes on reals that define a node on quantised tensors, the last of which gives its result; None for others."""
    rule = _RULES.get(node.op_type)
    if rule is None or attributes(node).get("channels_last"):
        return None
    writer = _Writer(node)
    rule(writer)
    return writer.nodes


def _kept(node: NodeProto, *without: str) -> dict[str, Any]:
    return {name: value for name, value in attributes(node).items() if name not in ("channels_last", *without)}


def _convolution(w: _Writer) -> None:
    operands = [w.real(0), w.real(3, axis=0), *w.bias(8, (1, 4))]
    w.stored(w.op("Conv", operands, **_kept(w.node)), 6)


def _product(w: _Writer) -> None:
    w.stored(w.op("MatMul", [w.real(0, axis=-2), w.real(3, axis=-1)]), 6)


def _gemm(w: _Writer) -> None:
    found = _kept(w.node)
    columns = 0 if found.get("transB") else 1
    operands = [w.real(0), w.real(3, axis=columns), *w.bias(6, (1, 4), float(found.get("alpha", 1.0)))]
    if not optional_input(w.node, 7):
        w.op("Gemm", operands, w.node.output[0], **found)
        return
    w.stored(w.op("Gemm", operands, **found), 7)


def _both(operator: str) -> Callable[[_Writer], None]:
    return lambda w: w.stored(w.op(operator, [w.real(0), w.real(3)]), 6)


def _one(operator: str, *without: str) -> Callable[[_Writer], None]:
    return lambda w: w.stored(w.op(operator, [w.real(0)], **_kept(w.node, *without)), 3)


def _joined(w: _Writer) -> None:
    operands = [w.real(first) for first in range(2, len(w.node.input), 3)]
    w.stored(w.op("Concat", operands, **_kept(w.node)), 0)


_RULES: dict[str, Callable[[_Writer], None]] = {
    "QGemm": _gemm,
    "QLinearAdd": _both("Add"),
    "QLinearAveragePool": _one("AveragePool"),
    "QLinearConcat": _joined,
    "QLinearConv": _convolution,
    "QLinearGlobalAveragePool": _one("GlobalAveragePool"),
    "QLinearLeakyRelu": _one("LeakyRelu"),
    "QLinearMatMul": _product,
    "QLinearMul": _both("Mul"),
    "QLinearSigmoid": _one("Sigmoid"),
    "QLinearSoftmax": _one("Softmax", "opset"),
}
