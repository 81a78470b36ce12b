"""Which operands of which operators ONNX Runtime multiplies as integers of 8 bits, with their zero points.

From ONNX's and ONNX Runtime's definitions of the operators (docs/ContribOperators.md).

Pairs of QuantizeLinear and DequantizeLinear around other operators keep their type: unsigned ones ONNX Runtime would
fuse with these too, and its fused sums and averages round other ties than their definition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from onnx import NodeProto

from sartor.onnx_model.graphs.graph import GraphEditor
from sartor.onnx_model.graphs.walk import subgraphs
from sartor.onnx_model.operator_types.alike import BY_WEIGHTS
from sartor.onnx_model.operator_types.moving import MOVING

# It moves pairs across operators that only move elements, and drops those that a range makes superfluous.
_PASSING = MOVING | {"Clip", "Dropout", "MaxPool", "Pad", "Relu"}
_ROUNDING = "QuantizeLinear"


def is_multiplied(node: NodeProto, editor: GraphEditor) -> bool:
    """Whether a DequantizeLinear may be fused with a product: it gives a weight, or a product reads it."""
    source = _source(node, editor)
    if source is None or source.op_type != _ROUNDING:
        return True
    pending, seen = list(node.output), set[str]()
    while pending:
        name = pending.pop()
        readers = [] if name in seen else editor.consumers(name)
        seen.add(name)
        if any(reader.op_type in BY_WEIGHTS or any(subgraphs(reader)) for reader in readers):
            return True
        pending.extend(output for reader in readers if reader.op_type in _PASSING for output in reader.output)
    return False


def is_product(node: NodeProto, editor: GraphEditor) -> bool:
    """Whether a QuantizeLinear may be fused with a product that it rounds."""
    source = _source(node, editor)
    return source is not None and source.op_type in BY_WEIGHTS


def _source(node: NodeProto, editor: GraphEditor) -> NodeProto | None:
    """The node that computes what a node reads, apart from those that only move it."""
    source = editor.producer(node.input[0])
    while source is not None and source.op_type in _PASSING:
        source = editor.producer(source.input[0])
    return source


CONTRIB = "com.microsoft"


@dataclass(frozen=True)
class Quantised:
    """A tensor of 8-bit integers that a node reads or writes, and its zero point.

    Attributes:
        index: of the tensor among the node's inputs or outputs.
        zero: index of the zero point among the inputs. If it is omitted, the zero point is 0.
        scale: index of the scale among the inputs, if the zero point must have its shape; None if it may be a scalar.
    """

    index: int
    zero: int
    scale: int | None = None


@dataclass(frozen=True)
class Product:
    """The quantised operands of an operator.

    Attributes:
        read: among its inputs.
        written: its result, if that is quantised.
        concerns: whether a node of this operator multiplies, or is fused with one that does.
    """

    read: tuple[Quantised, ...] = ()
    written: Quantised | None = None
    concerns: Callable[[NodeProto, GraphEditor], bool] = lambda _node, _editor: True


_CONVOLUTION = Product((Quantised(0, 2), Quantised(3, 5)), Quantised(0, 7))
_INTEGER = Product((Quantised(0, 2), Quantised(1, 3)))
# ONNX Runtime's optimisations fuse a pair with the product next to it, and then multiply the pair's integers.
_DEQUANTISED = Product((Quantised(0, 2, scale=1),), concerns=is_multiplied)
_ROUNDED = Product(written=Quantised(0, 2, scale=1), concerns=is_product)

PRODUCTS: Mapping[tuple[str, str], Product] = {
    ("", "QLinearConv"): _CONVOLUTION,
    (CONTRIB, "QLinearConv"): _CONVOLUTION,
    ("", "QLinearMatMul"): _CONVOLUTION,
    ("", "ConvInteger"): _INTEGER,
    ("", "MatMulInteger"): _INTEGER,
    ("", "DequantizeLinear"): _DEQUANTISED,
    (CONTRIB, "DequantizeLinear"): _DEQUANTISED,
    ("", "QuantizeLinear"): _ROUNDED,
    (CONTRIB, "QuantizeLinear"): _ROUNDED,
    (CONTRIB, "QGemm"): Product((Quantised(0, 2), Quantised(3, 5)), Quantised(0, 8)),
    (CONTRIB, "MatMulIntegerToFloat"): Product((Quantised(0, 4), Quantised(1, 5))),
    (CONTRIB, "DynamicQuantizeMatMul"): Product((Quantised(1, 3),)),
    (CONTRIB, "DynamicQuantizeLSTM"): Product((Quantised(1, 9, scale=8), Quantised(2, 11, scale=10))),
    (CONTRIB, "QAttention"): Product((Quantised(0, 6), Quantised(1, 7))),
}
"""By domain and name. QOrdered operators, MatMulInteger16 and QOrderedMatMul have no kernel for CPUs."""

ROUNDING = frozenset({(CONTRIB, "MatMulNBits"), (CONTRIB, "QMoE")})
"""Operators whose ``accuracy_level`` allows a rounding of their operands that their definition does not contain."""


def key_of(node: NodeProto) -> tuple[str, str]:
    """Domain and name of a node's operator."""
    return ("" if node.domain == "ai.onnx" else node.domain), node.op_type


def is_quantised(node: NodeProto) -> bool:
    """Whether a node's operator has quantised operands."""
    return key_of(node) in PRODUCTS


def product_of(node: NodeProto, editor: GraphEditor) -> Product | None:
    """The quantised operands of a node that are multiplied; None if it has none."""
    product = PRODUCTS.get(key_of(node))
    return product if product and product.concerns(node, editor) else None
