"""One model for each operator and type, with the operands that it is run on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, ValueInfoProto, checker, helper, numpy_helper, shape_inference

from tools.extremes.values import TYPES, Array, convertible, extremes, pairs, rows

NODE = "the_node"
_OPSET, _IR = 20, 9
_AXIS: Mapping[str, Any] = {"axis": 1}
UNARY: Mapping[str, Mapping[str, Any]] = {
    **{
        name: {}
        for name in (
            *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Celu", "Cos", "Cosh"),
            *("Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN"),
            *("LeakyRelu", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid"),
            *("Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh", "ThresholdedRelu"),
        )
    },
    **{f"Cast {name}": {"to": helper.np_dtype_to_tensor_dtype(np.dtype(name))} for name in TYPES},
}
ALONG: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(("ArgMax", "ArgMin", "Hardmax", "LogSoftmax", "Softmax"), _AXIS),
    **{
        name: {}
        for name in (
            *("CumSum", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean"),
            *("ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"),
        )
    },
}
BINARY: Mapping[str, Mapping[str, Any]] = {
    **{
        name: {}
        for name in (
            *("Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual"),
            *("Less", "LessOrEqual", "Max", "Min", "Mod", "Mul", "Or", "PRelu", "Pow", "Sub", "Xor"),
        )
    },
    "BitShift left": {"direction": "LEFT"},
    "BitShift right": {"direction": "RIGHT"},
    "Mod of C": {"fmod": 1},
}
OPERATORS = (*UNARY, *ALONG, *BINARY)


@dataclass(frozen=True)
class Case:
    """A model of one node and what it is run on.

    Attributes:
        model: checked by ONNX.
        feeds: operand by input's name.
    """

    model: ModelProto
    feeds: Mapping[str, Array]


def case(title: str, name: str) -> Case | None:
    """The model of an operator, which may have a variant behind a blank, in a type; None if ONNX has no such one."""
    operator = title.split()[0]
    constants: dict[str, Array] = {}
    if title in BINARY:
        first, second = pairs(operator, name)
        feeds = {"x": first, "y": second}
    elif title in ALONG:
        feeds = {"x": rows(extremes(name))}
        if "axis" not in ALONG[title]:
            constants["axis"] = np.array(1 if operator == "CumSum" else [1])
    else:
        values = extremes(name)
        feeds = {"x": convertible(values, title.split()[1]) if operator == "Cast" else values}
    options = {**UNARY, **ALONG, **BINARY}[title]
    built = _model(operator, options, feeds, constants)
    return Case(built, feeds) if built is not None else None


def _model(
    operator: str, options: Mapping[str, Any], feeds: Mapping[str, Array], constants: Mapping[str, Array]
) -> ModelProto | None:
    node = helper.make_node(operator, [*feeds, *constants], ["z"], name=NODE, **options)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values.dtype), values.shape)
        for name, values in feeds.items()
    ]
    tensors = [numpy_helper.from_array(values, name) for name, values in constants.items()]
    graph = helper.make_graph([node], operator, inputs, [ValueInfoProto(name="z")], tensors)
    bare = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR)
    try:
        built = shape_inference.infer_shapes(bare, check_type=True, strict_mode=True)
        checker.check_model(built)
    except (shape_inference.InferenceError, checker.ValidationError):
        return None
    return built if built.graph.output[0].type.tensor_type.elem_type != TensorProto.UNDEFINED else None
