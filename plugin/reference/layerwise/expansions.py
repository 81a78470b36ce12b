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
from sartor.runtime.driver.signature import Array

# The operator set from which on reductions have their axes as an input.
_AXES_AS_INPUT = 18


@dataclass(frozen=True)
class Place:
    """Where a node is.

    Attributes:
        version: of the standard operators there.
        value_of: gives a tensor by its name.
    """

    version: int
    value_of: Callable[[str], Array]


@dataclass
class _Writer:
    """Collects the nodes that define one node."""

    node: NodeProto
    place: Place
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
        # Without a zero point it has the type of the operand.
        typed = {} if len(names) > 1 else {"output_dtype": self._kind}
        self.op("QuantizeLinear", [number, *names], self.node.output[0], **typed)

    def image(self, first: int) -> str:
        """As ``real``, with channels second, where the node's images may have them last."""
        number = self.real(first)
        if not self._is_last:
            return number
        rank = self.place.value_of(self.node.input[first]).ndim
        return self.op("Transpose", [number], perm=[0, rank - 1, *range(1, rank - 1)])

    def stored_image(self, number: str, scale: int) -> None:
        """As ``stored``, of an image with channels second."""
        if self._is_last:
            rank = self.place.value_of(self.node.input[0]).ndim
            number = self.op("Transpose", [number], perm=[0, *range(2, rank), 1])
        self.stored(number, scale)

    @property
    def _kind(self) -> int:
        return helper.np_dtype_to_tensor_dtype(self.place.value_of(self.node.input[0]).dtype)

    @property
    def _is_last(self) -> bool:
        return bool(attributes(self.node).get("channels_last"))

    def ranged(self, name: str) -> str:
        """A number rounded to 8 bits by its own range."""
        parts = [f"{self.node.output[0]}/{part}" for part in ("integers", "scale", "zero")]
        self.nodes.append(helper.make_node("DynamicQuantizeLinear", [name], parts, name=self.node.name))
        return self.op("DequantizeLinear", parts)

    def dequantised(self, value: int, scale: int, zero: int) -> str:
        """The dequantised operand at an input, with a scale for each of its columns, or one."""
        names = [name for index in (value, scale, zero) if (name := optional_input(self.node, index))]
        return self.op("DequantizeLinear", names, axis=-1)

    def product(self, left: str, right: str, bias: int) -> None:
        """The node's result: a product of matrices, plus what is at an input, if there is anything."""
        added = optional_input(self.node, bias)
        product = self.op("MatMul", [left, right], "" if added else self.node.output[0])
        if added:
            self.op("Add", [product, added], self.node.output[0])

    def bias(self, index: int, scales: Sequence[int], factor: float = 1.0) -> list[str]:
        """The bias in 32-bit integers at an input, if there is one, times the scales of both factors."""
        name = optional_input(self.node, index)
        if not name:
            return []
        whole = self.op("Cast", [name], to=TensorProto.FLOAT)
        scale = self.op("Mul", [self.node.input[place] for place in scales])
        if factor != 1.0:
            scale = self.op("Mul", [scale, self.op("Constant", [], value_float=factor)])
        return [self.op("Mul", [whole, scale])]


def definition(node: NodeProto, place: Place) -> list[NodeProto] | None:
    """Nodes on reals that define a node on quantised tensors, the last of which gives its result; None for others."""
    rule = _RULES.get(node.op_type)
    if rule is None:
        return None
    writer = _Writer(node, place)
    rule(writer)
    return writer.nodes


def _kept(node: NodeProto, *without: str) -> dict[str, Any]:
    return {name: value for name, value in attributes(node).items() if name not in ("channels_last", *without)}


def _convolution(w: _Writer) -> None:
    operands = [w.image(0), w.real(3, axis=0), *w.bias(8, (1, 4))]
    w.stored_image(w.op("Conv", operands, **_kept(w.node)), 6)


def _product(w: _Writer) -> None:
    w.stored(w.op("MatMul", [w.real(0, axis=-2), w.real(3, axis=-1)]), 6)


def _gemm(w: _Writer) -> None:
    settings = _kept(w.node)
    columns = 0 if settings.get("transB") else 1
    operands = [w.real(0), w.real(3, axis=columns), *w.bias(6, (1, 4), float(settings.get("alpha", 1.0)))]
    if not optional_input(w.node, 7):
        w.op("Gemm", operands, w.node.output[0], **settings)
        return
    w.stored(w.op("Gemm", operands, **settings), 7)


def _both(operator: str) -> Callable[[_Writer], None]:
    return lambda w: w.stored(w.op(operator, [w.real(0), w.real(3)]), 6)


def _one(operator: str) -> Callable[[_Writer], None]:
    return lambda w: w.stored(w.op(operator, [w.real(0)], **_kept(w.node)), 3)


def _pooled(operator: str) -> Callable[[_Writer], None]:
    return lambda w: w.stored_image(w.op(operator, [w.image(0)], **_kept(w.node)), 3)


def _softmax(w: _Writer) -> None:
    # Its attribute ``opset`` says how dimensions after the axis count; those of preparation are the last one alone.
    w.stored(w.op("Softmax", [w.real(0)], axis=attributes(w.node).get("axis", -1)), 3)


def _mean(w: _Writer) -> None:
    settings, operands = _kept(w.node, "axes"), [w.real(0)]
    if axes := attributes(w.node).get("axes"):
        if w.place.version < _AXES_AS_INPUT:
            settings["axes"] = axes
        else:
            operands.append(w.op("Constant", [], value_ints=axes))
    w.stored(w.op("ReduceMean", operands, **settings), 3)


def _joined(w: _Writer) -> None:
    operands = [w.real(first) for first in range(2, len(w.node.input), 3)]
    w.stored(w.op("Concat", operands, **_kept(w.node)), 0)


def _chosen(w: _Writer) -> None:
    w.stored(w.op("Where", [w.node.input[0], w.real(1), w.real(4)]), 7)


def _dynamic_product(w: _Writer) -> None:
    w.product(w.ranged(w.node.input[0]), w.dequantised(1, 2, 3), 4)


def _integer_product(w: _Writer) -> None:
    w.product(w.dequantised(0, 2, 4), w.dequantised(1, 3, 5), 6)


_RULES: dict[str, Callable[[_Writer], None]] = {
    "DynamicQuantizeMatMul": _dynamic_product,
    "MatMulIntegerToFloat": _integer_product,
    "QGemm": _gemm,
    "QLinearAdd": _both("Add"),
    "QLinearAveragePool": _pooled("AveragePool"),
    "QLinearConcat": _joined,
    "QLinearConv": _convolution,
    "QLinearGlobalAveragePool": _pooled("GlobalAveragePool"),
    "QLinearLeakyRelu": _one("LeakyRelu"),
    "QLinearMatMul": _product,
    "QLinearMul": _both("Mul"),
    "QLinearReduceMean": _mean,
    "QLinearSigmoid": _one("Sigmoid"),
    "QLinearSoftmax": _softmax,
    "QLinearWhere": _chosen,
}
