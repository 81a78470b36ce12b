"""Checks that a tensor has as many bytes or list entries as its declared shape needs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.held_data import held_array, held_data
from sartor.onnx_model.graphs.limits import MAX_DIMENSION, MAX_MODEL_BYTES, MAX_RANK
from sartor.onnx_model.graphs.mapped_data import mapped_array

_SUB_BYTE_BITS: dict[int, int] = {
    TensorProto.INT4: 4,
    TensorProto.UINT4: 4,
    TensorProto.FLOAT4E2M1: 4,
    TensorProto.INT2: 2,
    TensorProto.UINT2: 2,
    TensorProto.FLOAT6E2M3: 6,
    TensorProto.FLOAT6E3M2: 6,
}
_COMPLEX = (TensorProto.COMPLEX64, TensorProto.COMPLEX128)
_DATA_TYPES = frozenset(TensorProto.DataType.values()) - {TensorProto.UNDEFINED}
_TYPED_FIELDS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")


def element_bits(data_type: int) -> int:
    """Bits of one element as ONNX stores it; strings have no fixed size and count as 0."""
    if data_type == TensorProto.STRING:
        return 0
    if data_type in _SUB_BYTE_BITS:
        return _SUB_BYTE_BITS[data_type]
    return int(helper.tensor_dtype_to_np_dtype(data_type).itemsize) * 8


def element_count(dims: Iterable[int], what: str) -> int:
    """Product of ``dims``.

    Args:
        dims: a shape.
        what: names the tensor in the message.

    Raises:
        UnsupportedModelError: a dimension, or the number of dimensions, is out of bounds.
    """
    dims = tuple(dims)
    if len(dims) > MAX_RANK or any(not 0 <= dim <= MAX_DIMENSION for dim in dims):
        raise UnsupportedModelError(f"{what} has the impossible shape {list(dims[:8])}; the file is damaged")
    return math.prod(dims)


def stored_bytes(tensor: TensorProto, what: str) -> int:
    """Bytes of raw data that the declared type and shape of ``tensor`` need.

    Raises:
        UnsupportedModelError: unknown element type, impossible shape, or more bytes than a model may hold. The message
            calls the tensor ``what``.
    """
    if tensor.data_type not in _DATA_TYPES:
        raise UnsupportedModelError(f"{what} has the unknown element type {tensor.data_type}; the file is damaged")
    count = element_count(tensor.dims, what)
    size = -(-count * element_bits(tensor.data_type) // 8)
    if max(size, count // 8) > MAX_MODEL_BYTES:
        raise UnsupportedModelError(
            f"{what} declares {size} bytes, more than the {MAX_MODEL_BYTES} a model may hold; the file is damaged"
        )
    return size


def check_stored_data(tensor: TensorProto, what: str) -> None:
    """Check that a tensor's data has the size that its type and shape declare.

    Raises:
        UnsupportedModelError: it has not, or is stored in a way that is not supported.
    """
    size = stored_bytes(tensor, what)
    if tensor.HasField("segment"):
        raise UnsupportedModelError(f"{what} is stored in segments, which is not supported; export the model again")
    held = held_data(tensor)
    if held is not None:
        present, expected, unit = len(held), size, "bytes"
    elif tensor.HasField("raw_data"):
        present, expected, unit = len(tensor.raw_data), size, "bytes"
        if tensor.data_type == TensorProto.STRING:
            raise UnsupportedModelError(f"{what} holds strings as raw data, which ONNX does not allow")
    else:
        present, expected, unit = _typed_entries(tensor), _expected_entries(tensor), "values"
    if present != expected:
        raise UnsupportedModelError(
            f"{what} has {present} {unit} of data where its shape {list(tensor.dims)} needs {expected}; "
            "the file is damaged or truncated"
        )


def _typed_entries(tensor: TensorProto) -> int:
    own = helper.tensor_dtype_to_field(tensor.data_type)
    return sum((len(getattr(tensor, field)) for field in _TYPED_FIELDS if field == own), start=0)


def _expected_entries(tensor: TensorProto) -> int:
    count = int(math.prod(tensor.dims))
    if tensor.data_type in _COMPLEX:
        return count * 2
    per_entry = 8 // _SUB_BYTE_BITS.get(tensor.data_type, 8)
    return -(-count // per_entry)


def to_array(tensor: TensorProto) -> np.ndarray[Any, Any]:
    """The values of a checked tensor, which must not be written to."""
    held = held_array(tensor)
    mapped = mapped_array(tensor) if held is None else held
    return numpy_helper.to_array(tensor) if mapped is None else mapped
