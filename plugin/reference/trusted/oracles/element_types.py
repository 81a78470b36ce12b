"""The element types of a graph's values, by ONNX Runtime's own schemas, which know its own operators too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from onnx import GraphProto, NodeProto, TensorProto, TypeProto, helper
from onnxruntime.capi import onnxruntime_pybind11_state as state

from sartor.onnx_model.operator_types.alike import WITH_BODIES

# Attributes that name the type of the first output, with the type if there is none: 0 is that of the first input.
_NAMED: Mapping[str, tuple[str, int]] = {
    "Cast": ("to", TensorProto.FLOAT),
    "EyeLike": ("dtype", 0),
    "RandomNormalLike": ("dtype", 0),
    "RandomUniformLike": ("dtype", 0),
    "Bernoulli": ("dtype", 0),
    "RandomNormal": ("dtype", TensorProto.FLOAT),
    "RandomUniform": ("dtype", TensorProto.FLOAT),
    "Multinomial": ("dtype", TensorProto.INT32),
    "BlackmanWindow": ("output_datatype", TensorProto.FLOAT),
    "HannWindow": ("output_datatype", TensorProto.FLOAT),
    "HammingWindow": ("output_datatype", TensorProto.FLOAT),
    "MelWeightMatrix": ("output_datatype", TensorProto.FLOAT),
}
# What is decided by an attribute or by an operand that may be left out: attribute, operand, type without either.
_QUANTISING: Mapping[str, tuple[str, int, int]] = {
    "QuantizeLinear": ("output_dtype", 2, TensorProto.UINT8),
    "DequantizeLinear": ("output_dtype", 1, TensorProto.FLOAT),
}
_BY_NAME = {f"tensor({name.lower()})": code for name, code in TensorProto.DataType.items()}


@cache
def _schemas() -> Mapping[tuple[str, str], Sequence[Any]]:
    """All schemas by domain and operator, newest first."""
    known: dict[tuple[str, str], list[Any]] = {}
    for schema in state.get_all_operator_schema():
        domain = "" if schema.domain == "ai.onnx" else schema.domain
        known.setdefault((domain, schema.name), []).append(schema)
    return {key: sorted(schemas, key=lambda schema: -schema.since_version) for key, schemas in known.items()}


def infer_types(graph: GraphProto, types: dict[str, int], versions: Mapping[str, int]) -> None:
    """Add the element types of a graph's values to those that are known around it.

    Args:
        graph: nodes are sorted. Values of its bodies are not added.
        types: ``TensorProto.DataType`` by name; tensors only.
        versions: of operator sets, by domain.
    """
    for tensor in graph.initializer:
        types[tensor.name] = tensor.data_type
    for value in graph.input:
        _declare(value.name, value.type, types)
    for node in graph.node:
        for name, kind in zip(node.output, output_types(node, types, versions), strict=False):
            if name and kind is not None:
                types[name] = kind


def _declare(name: str, declared: TypeProto, types: dict[str, int]) -> None:
    if declared.tensor_type.elem_type:
        types[name] = declared.tensor_type.elem_type


def output_types(node: NodeProto, types: Mapping[str, int], versions: Mapping[str, int]) -> list[int | None]:
    """The element type of each output of a node; None where it is not known, or no tensor."""
    named = {attribute.name: attribute for attribute in node.attribute}
    inputs = [types.get(name) for name in node.input]
    if node.op_type in WITH_BODIES and not node.domain:
        return _of_body(node, types, versions)
    if node.op_type in _NAMED and not node.domain:
        attribute, default = _NAMED[node.op_type]
        return [named[attribute].i if attribute in named else default or inputs[0]]
    if node.op_type in _QUANTISING:
        attribute, operand, default = _QUANTISING[node.op_type]
        chosen = named[attribute].i if attribute in named else 0
        by_operand = inputs[operand] if len(inputs) > operand and node.input[operand] else None
        return [chosen or by_operand or default]
    if node.op_type in ("Constant", "ConstantOfShape"):
        return [_of_constant(node)]
    return _by_schema(node, inputs, versions)


def _of_constant(node: NodeProto) -> int | None:
    for attribute in node.attribute:
        if attribute.name == "value":
            return attribute.t.data_type
        if attribute.name in ("value_int", "value_ints"):
            return int(TensorProto.INT64)
        if attribute.name in ("value_string", "value_strings"):
            return int(TensorProto.STRING)
    return int(TensorProto.FLOAT)


def _of_body(node: NodeProto, types: Mapping[str, int], versions: Mapping[str, int]) -> list[int | None]:
    """Types of a control-flow node's outputs: those of its first body, without a Loop's condition."""
    body = next(attribute.g for attribute in node.attribute if attribute.HasField("g"))
    inside = dict(types)
    for value, kind in zip(body.input, body_input_types(node, types), strict=False):
        if kind is not None:
            inside[value.name] = kind
    infer_types(body, inside, versions)
    names = [value.name for value in body.output][1 if node.op_type == "Loop" else 0 :]
    return [inside.get(name) for name in names]


def body_input_types(node: NodeProto, types: Mapping[str, int]) -> list[int | None]:
    """Types of what a control-flow node gives its body."""
    given = [types.get(name) for name in node.input]
    if node.op_type == "Loop":
        return [int(TensorProto.INT64), int(TensorProto.BOOL), *given[2:]]
    return given if node.op_type == "Scan" else []


def _by_schema(node: NodeProto, inputs: Sequence[int | None], versions: Mapping[str, int]) -> list[int | None]:
    schema = schema_of(node, versions)
    if schema is None:
        return [None] * len(node.output)
    bound: dict[str, int] = {}
    for index, kind in enumerate(inputs):
        formal = _formal(schema.inputs, index)
        if formal is not None and kind is not None:
            bound.setdefault(formal.typeStr, kind)
    formals = [_formal(schema.outputs, index) for index in range(len(node.output))]
    return [None if formal is None else bound.get(formal.typeStr, _BY_NAME.get(formal.typeStr)) for formal in formals]


def schema_of(node: NodeProto, versions: Mapping[str, int]) -> Any:
    """The schema of a node's operator in the version that the model imports; None if there is none."""
    known = _schemas().get((node.domain, node.op_type), ())
    version = versions.get(node.domain, 1)
    return next((schema for schema in known if schema.since_version <= version), None)


def _formal(formals: Sequence[Any], index: int) -> Any:
    """A formal parameter; the last one may stand for all that follow."""
    if index < len(formals):
        return formals[index]
    return formals[-1] if formals and "Variadic" in str(formals[-1].option) else None


def numpy_code(array_type: Any) -> int:
    """The ``TensorProto.DataType`` of a numpy element type."""
    return int(TensorProto.STRING) if array_type.kind in "OUS" else int(helper.np_dtype_to_tensor_dtype(array_type))
