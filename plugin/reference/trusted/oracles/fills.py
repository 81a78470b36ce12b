"""Operators of the first versions of ONNX that fill tensors, from ONNX 1.2's text of experimental operators."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from sartor.reference.trusted.oracles.call import Call
from sartor.runtime.driver.signature import Array


def constant_fill(call: Call) -> list[Array]:
    """ConstantFill: one value everywhere."""
    kind = call.attributes.get("dtype", TensorProto.FLOAT)
    code = TensorProto.DataType.Value(kind.decode()) if isinstance(kind, bytes) else int(kind)
    return [np.full(_shape(call), call.number("value", 0.0)).astype(helper.tensor_dtype_to_np_dtype(code))]


def given_tensor_fill(call: Call) -> list[Array]:
    """GivenTensorFill: the given values in the order of memory."""
    return [np.asarray(call.attributes["values"], np.float32).reshape(_shape(call))]


def _shape(call: Call) -> tuple[int, ...]:
    """The shape that an attribute has, or an input's, or its values; further dimensions may follow."""
    given = call.input(0)
    if given is None:
        shape = tuple(call.attributes.get("shape", ()))
    else:
        shape = tuple(given.tolist()) if call.whole("input_as_shape", 0) else given.shape
    return (*shape, *call.attributes.get("extra_shape", ()))
