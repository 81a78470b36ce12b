"""Which operands of which operators ONNX Runtime multiplies as integers of 8 bits, with their zero points.

From ONNX's and ONNX Runtime's definitions of the operators (docs/ContribOperators.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from onnx import NodeProto

from sartor.onnx_model.graphs.graph import GraphEditor
from sartor.reference.trusted.exact.fusions import is_multiplied, is_product

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
