"""Shapes of the results of ONNX Runtime's operators, by domain and name."""

from __future__ import annotations

from collections.abc import Mapping

from sartor.onnx_model.operator_types.attention_shapes import ATTENTION_SHAPES
from sartor.onnx_model.operator_types.operands import Operands, Rule, Shape
from sartor.onnx_model.operator_types.product_shapes import PRODUCT_SHAPES
from sartor.onnx_model.operator_types.schemas import BLOCKED_DOMAIN, CONTRIB_DOMAIN, UNDECLARED_CONTRIB
from sartor.onnx_model.operator_types.window_shapes import BLOCKED_SHAPES, WINDOW_SHAPES


def _like(operand: int, *results: int) -> Rule:
    """The rule by which some results have the shape of an operand."""

    def rule(operands: Operands) -> list[Shape]:
        shape = operands.shape(operand)
        return [shape if index in results else None for index in range(max(results) + 1)]

    return rule


def _halved(operands: Operands) -> list[Shape]:
    """Of a BiasSplitGelu: the last dimension is halved."""
    shape = operands.shape(0)
    if not shape:
        return [None]
    last = shape[-1]
    return [[*shape[:-1], last // 2 if isinstance(last, int) else None]]


_LIKE_FIRST = (
    *("BiasAdd", "BiasGelu", "BiasSoftmax", "FastGelu", "Gelu", "GroupNorm", "Inverse", "LayerNormalization"),
    *("DequantizeLinear", "QuantizeLinear", "QLinearLeakyRelu", "QLinearSigmoid", "QLinearSoftmax"),
    *("MoE", "QMoE", "QuickGelu", "RotaryEmbedding", "SampleOp", "SimplifiedLayerNormalization", "Trilu"),
)

RULES: Mapping[tuple[str, str], Rule] = {
    **{(CONTRIB_DOMAIN, name): _like(0, 0) for name in _LIKE_FIRST},
    (CONTRIB_DOMAIN, "SkipGroupNorm"): _like(0, 0, 1),
    **{(CONTRIB_DOMAIN, f"Skip{name}"): _like(0, 0, 3) for name in UNDECLARED_CONTRIB},
    (CONTRIB_DOMAIN, "BiasSplitGelu"): _halved,
    **{(CONTRIB_DOMAIN, name): rule for name, rule in (*ATTENTION_SHAPES.items(), *PRODUCT_SHAPES.items())},
    **{(CONTRIB_DOMAIN, name): rule for name, rule in WINDOW_SHAPES.items()},
    **{(BLOCKED_DOMAIN, name): rule for name, rule in BLOCKED_SHAPES.items()},
}
