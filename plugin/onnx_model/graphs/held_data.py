"""Weights that stay where they are, in the mapped file, while their model is rewritten.

A message cannot refer to an array, so a tensor whose data is held names it by number, in fields that the loaded model
has no other use for: what a file itself calls external data is read, or refused, before anything is held. Only
initialisers of the model's own graph are held; tensors elsewhere are few, and other libraries look at them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from onnx import ModelProto, StringStringEntryProto, TensorProto, helper

from sartor.onnx_model.graphs.wire import put_together

HELD_BYTES = 2**16
"""Data below this size is not worth holding."""

_NUMBER = "held"
# Types that are stored as numpy has them; of others an element may be less than a byte.
_PLAIN = frozenset(
    {
        *(TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE),
        *(TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64),
        *(TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64),
    }
)

_held: ContextVar[list[memoryview] | None] = ContextVar("held", default=None)


@contextmanager
def holding() -> Iterator[None]:
    """Models that are loaded inside refer to their files, and are of no use outside."""
    token = _held.set([])
    try:
        yield
    finally:
        _held.reset(token)


def is_holding() -> bool:
    """Whether data may be held."""
    return _held.get() is not None


def hold(tensor: TensorProto, data: bytes | memoryview) -> None:
    """Let ``tensor`` refer to its data, or copy it there if it cannot."""
    store = _held.get()
    if store is None or tensor.data_type not in _PLAIN or len(data) < HELD_BYTES:
        tensor.raw_data = bytes(data)
        return
    tensor.external_data.append(StringStringEntryProto(key=_NUMBER, value=str(len(store))))
    tensor.data_location = TensorProto.EXTERNAL
    store.append(memoryview(data))


def release(tensor: TensorProto) -> None:
    """Copy held data into ``tensor``."""
    data = held_data(tensor)
    if data is not None:
        del tensor.external_data[:]
        tensor.ClearField("data_location")
        tensor.raw_data = bytes(data)


def held_data(tensor: TensorProto) -> memoryview | None:
    """The data of a tensor that holds none itself."""
    store = _held.get()
    if store is None or tensor.data_location != TensorProto.EXTERNAL:
        return None
    return store[int(tensor.external_data[0].value)]


def held_array(tensor: TensorProto) -> np.ndarray[Any, Any] | None:
    """The values of a tensor whose data is held."""
    data = held_data(tensor)
    if data is None:
        return None
    return np.frombuffer(data, helper.tensor_dtype_to_np_dtype(tensor.data_type)).reshape(tuple(tensor.dims))


def serialised(model: ModelProto) -> Iterator[bytes | memoryview]:
    """The pieces of a model's file, all data inside: together what protobuf makes of it where nothing is held."""
    found = ((index, held_data(tensor)) for index, tensor in enumerate(model.graph.initializer))
    ranges = {index: data for index, data in found if data is not None}
    return put_together(model.SerializeToString(deterministic=True), ranges)
