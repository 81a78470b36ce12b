"""Sets subnormal weights to zero: on x86 a multiplication by one takes as long as a hundred normal multiplications."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper

from sartor.onnx_model.graphs.graph import Array
from sartor.onnx_model.graphs.tensor_data import to_array
from sartor.onnx_model.graphs.walk import graphs

# Not float16: its subnormals become normal numbers when they are widened, so they are not slow. They are as large as
# 6e-5, which may matter to a network.
_SMALLEST_NORMAL: dict[int, float] = {
    TensorProto.FLOAT: 2.0**-126,
    TensorProto.BFLOAT16: 2.0**-126,
    TensorProto.DOUBLE: 2.0**-1022,
}

_BLOCK = 2**17


def flush_denormals(model: ModelProto) -> tuple[str, ...]:
    """Replace subnormal values in float32, bfloat16 and float64 initialisers by zero; returns the initialisers' names.

    A weight changes by less than 1.2e-38. Tensors of one element are not changed: they are bounds and epsilons, where
    zero could cause a division by zero.
    """
    changed: list[str] = []
    for graph in graphs(model):
        for tensor in graph.initializer:
            flushed = _flushed(tensor)
            if flushed is not None:
                tensor.CopyFrom(numpy_helper.from_array(flushed, tensor.name))
                changed.append(tensor.name)
    return tuple(changed)


def _flushed(tensor: TensorProto) -> Array | None:
    smallest = _SMALLEST_NORMAL.get(tensor.data_type)
    if smallest is None:
        return None
    values = to_array(tensor)
    if values.size <= 1 or not _has_subnormals(values.reshape(-1), smallest):
        return None
    return np.where(np.abs(values) < smallest, values.dtype.type(0), values)


def _has_subnormals(values: Array, smallest: float) -> bool:
    """Whether a weight is subnormal. Works block by block, so that intermediate results fit the cache."""
    for start in range(0, len(values), _BLOCK):
        size = np.abs(values[start : start + _BLOCK])
        if ((size < smallest) & (size > 0)).any():
            return True
    return False
