"""Operators of quantised values."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from sartor.reference.trusted.oracles.call import Call
from sartor.runtime.driver.signature import Array


def qlinear_reduce_mean(call: Call) -> list[Array]:
    """QLinearReduceMean: the mean of real numbers, quantised."""
    data = call.given(0)
    axes = tuple(axis % data.ndim for axis in call.attributes.get("axes", ())) or None
    real = (call.wide(0) - call.wide_or(2, 0.0)) * call.wide(1)
    mean = real.mean(axes, keepdims=bool(call.whole("keepdims", 1)))
    limits = np.iinfo(data.dtype)
    steps = np.rint(mean / call.wide(3)) + call.wide_or(4, 0.0)
    return [np.clip(steps, limits.min, limits.max).astype(data.dtype)]


def cut_to_four_bits(call: Call) -> list[Array]:
    """Cast, or CastLike, of floats to integers of four bits, which drops the fraction; what does not fit is not
    defined."""
    like = call.input(1)
    kind = helper.tensor_dtype_to_np_dtype(call.whole("to", TensorProto.INT4)) if like is None else like.dtype
    return [np.trunc(call.wide(0)).astype(np.int64).astype(kind)]
