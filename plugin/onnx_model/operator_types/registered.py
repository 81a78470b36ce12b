"""Makes ONNX Runtime's operators known to ONNX's inference while that runs, with the shapes of their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from onnx import NodeProto, TensorProto, defs, helper

from sartor.onnx_model.operator_types.attention_shapes import ATTENTION_SHAPES
from sartor.onnx_model.operator_types.operands import Operands, Rule, Shape
from sartor.onnx_model.operator_types.product_shapes import PRODUCT_SHAPES
from sartor.onnx_model.operator_types.schemas import BLOCKED_DOMAIN, CONTRIB_DOMAIN, UNDECLARED_CONTRIB, Schema, schemas
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


_ANY = "T"


@contextmanager
def known_operators(nodes: Iterable[NodeProto]) -> Iterator[None]:
    """Let ONNX's inference know the operators of these nodes within the ``with`` statement.

    What somebody else registered under the same name is left as it is.
    """
    used = {(node.domain, node.op_type) for node in nodes if node.domain}
    # Reading the schemas takes a tenth of a second, and most models have no such operators.
    added = [key for key in sorted(used & schemas().keys()) if not _is_registered(*key)] if used else []
    for key in added:
        defs.register_schema(_registrable(*key))
    try:
        yield
    finally:
        for domain, name in added:
            defs.deregister_schema(name, 1, domain)


def _is_registered(domain: str, name: str) -> bool:
    return defs.has(name, 1, domain)


@cache
def _registrable(domain: str, name: str) -> defs.OpSchema:
    """A schema for ONNX's registry: it infers results, and leaves it to the lowerings to check operands."""
    schema = schemas()[domain, name]
    return operator_schema(name, domain, lambda context: _infer(context, schema))


def operator_schema(name: str, domain: str, infer: Callable[[Any], None]) -> defs.OpSchema:
    """A schema of an operator of any tensors.

    Args:
        name: of the operator.
        domain: of the operator.
        infer: sets types of results in an ``onnx.shape_inference.InferenceContext``.
    """
    parameter, option = defs.OpSchema.FormalParameter, defs.OpSchema.FormalParameterOption.Variadic
    every = sorted({f"tensor({kind})" for kind in _tensor_kinds()})
    registrable = defs.OpSchema(
        name,
        domain,
        1,
        inputs=[parameter("operands", _ANY, param_option=option, is_homogeneous=False, min_arity=0)],
        outputs=[parameter("results", _ANY, param_option=option, is_homogeneous=False, min_arity=0)],
        type_constraints=[(_ANY, every, "")],
    )
    # The stubs know no context, and no exception of it.
    registrable.set_type_and_shape_inference_function(infer)
    return registrable


def _tensor_kinds() -> Iterator[str]:
    for name, number in TensorProto.DataType.items():
        if number != TensorProto.UNDEFINED:
            yield name.lower()


def _infer(context: Any, schema: Schema) -> None:
    """Set the types of the results whose element type is known, with their shapes where these are."""
    operands = Operands(context)
    rule = RULES.get((schema.domain, schema.name))
    shapes = list(rule(operands)) if rule else []
    for index in range(context.get_num_outputs()):
        kind = result_kind(schema, operands, index)
        if kind:
            shape = shapes[index] if index < len(shapes) else None
            context.set_output_type(index, helper.make_tensor_type_proto(kind, shape))


def result_kind(schema: Schema, operands: Operands, index: int) -> int:
    """The element type of a result: that of an operand with the same type name, or the only one; 0 if unknown."""
    name = schema.outputs[min(index, len(schema.outputs) - 1)]
    for position in range(operands.count):
        if schema.operand(position) == name and operands.kind(position):
            return operands.kind(position)
    if (domain_kind := _BY_OPERAND.get(schema.name)) is not None:
        return domain_kind(operands)
    allowed = schema.allowed.get(name, ())
    return allowed[0] if len(allowed) == 1 else 0


def _like_first(operands: Operands) -> int:
    return operands.kind(0)


def _quantised_product(operands: Operands) -> int:
    """Of a QGemm: the type of the zero point; without a scale, floats."""
    return operands.kind(8) or (operands.kind(0) if operands.kind(7) else operands.kind(1))


def _wide_integer(operands: Operands) -> int:
    is_unsigned = operands.kind(0) == operands.kind(1) == TensorProto.UINT16
    return (TensorProto.UINT32 if is_unsigned else TensorProto.INT32) if operands.kind(0) else 0


def _quantised(operands: Operands) -> int:
    """Of a QuantizeLinear without a zero point."""
    return TensorProto.UINT8


_BY_OPERAND = {
    "GridSample": _like_first,
    "MatMulInteger16": _wide_integer,
    "MultiHeadAttention": _like_first,
    "DecoderMaskedMultiHeadAttention": _like_first,
    "GroupQueryAttention": _like_first,
    "QGemm": _quantised_product,
    "QuantizeLinear": _quantised,
}
"""Operators whose result's type is named by no operand."""
