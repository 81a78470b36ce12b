"""Keeps weights in the memory-mapped file while their model is rewritten, in place of copying them into protobuf.

A protobuf message cannot refer to an array. So a tensor whose data is held stores the index of its data in the fields
for external data. These fields are free: the file's own external data is read, or refused, before any data is held.
Only initialisers of the model's own graph are held. Tensors elsewhere are few, and other libraries read them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from onnx import ModelProto, StringStringEntryProto, TensorProto, helper, numpy_helper

from sartor.onnx_model.graphs.wire import put_together

HELD_BYTES = 2**16
"""Data below this size is copied into the tensor."""

_NUMBER = "held"

PLAIN = frozenset(
    {
        *(TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE),
        *(TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64),
        *(TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64),
    }
)
"""Types that ONNX stores as numpy does. An element of other types may be smaller than a byte."""

_held: ContextVar[list[memoryview] | None] = ContextVar("held", default=None)


@contextmanager
def holding() -> Iterator[None]:
    """Let models that are loaded inside this context refer to data in their files. They are invalid outside of it."""
    token = _held.set([])
    try:
        yield
    finally:
        _held.reset(token)


def is_holding() -> bool:
    """Whether the caller runs inside ``holding``."""
    return _held.get() is not None


def hold(tensor: TensorProto, data: bytes | memoryview) -> None:
    """Let ``tensor`` refer to ``data``; copy ``data`` if it is small or stored differently, and outside ``holding``."""
    store = _held.get()
    if store is None or tensor.data_type not in PLAIN or len(data) < HELD_BYTES:
        tensor.raw_data = bytes(data)
        return
    tensor.external_data.append(StringStringEntryProto(key=_NUMBER, value=str(len(store))))
    tensor.data_location = TensorProto.EXTERNAL
    store.append(memoryview(data))


def holding_tensor(values: np.ndarray[Any, Any], name: str) -> TensorProto:
    """An initialiser with these values, which it refers to if they are large; they must not be written to then.

    Outside ``holding`` it has a copy.
    """
    kind = helper.np_dtype_to_tensor_dtype(values.dtype) if is_holding() and values.dtype != object else None
    if kind not in PLAIN or values.nbytes < HELD_BYTES:
        return numpy_helper.from_array(values, name)
    tensor = TensorProto(name=name, data_type=kind, dims=values.shape)
    hold(tensor, np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
    return tensor


def release(tensor: TensorProto) -> None:
    """Copy held data into ``tensor``; does nothing for a tensor that holds its own data."""
    data = held_data(tensor)
    if data is not None:
        del tensor.external_data[:]
        tensor.ClearField("data_location")
        tensor.raw_data = bytes(data)


def held_data(tensor: TensorProto) -> memoryview | None:
    """The data that ``tensor`` refers to; None if it holds its own data, or is in a mapped file (``mapped_data``)."""
    store = _held.get()
    if store is None or tensor.data_location != TensorProto.EXTERNAL or tensor.external_data[0].key != _NUMBER:
        return None
    return store[int(tensor.external_data[0].value)]


def held_array(tensor: TensorProto) -> np.ndarray[Any, Any] | None:
    """The values that ``tensor`` refers to, or None if it holds its own data."""
    data = held_data(tensor)
    if data is None:
        return None
    return np.frombuffer(data, helper.tensor_dtype_to_np_dtype(tensor.data_type)).reshape(tuple(tensor.dims))


def serialised(model: ModelProto) -> Iterator[bytes | memoryview]:
    """Serialise a model with its held data, in pieces. Joined, they are what protobuf writes if no data is held."""
    held = ((index, held_data(tensor)) for index, tensor in enumerate(model.graph.initializer))
    ranges = {index: data for index, data in held if data is not None}
    return put_together(model.SerializeToString(deterministic=True), ranges)
