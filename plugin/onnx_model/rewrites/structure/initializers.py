"""Converts all constants to dense initialisers that are not inputs."""

from __future__ import annotations

import logging

import numpy as np
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    helper,
    numpy_helper,
)

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.graph import Array
from sartor.onnx_model.graphs.limits import MAX_MODEL_BYTES
from sartor.onnx_model.graphs.tensor_data import element_bits, element_count, to_array
from sartor.onnx_model.graphs.walk import graphs

_log = logging.getLogger(__name__)

_OLDEST_IR = 8


def initializers_only(model: ModelProto) -> tuple[str, ...]:
    """Convert ``Constant`` nodes and sparse initialisers to initialisers, and remove initialisers from the inputs.

    Before IR version 4 every initialiser had to be listed as an input too. An input with a default value becomes a
    constant, as in ONNX Runtime if the caller does not feed it. Returns the names of the replaced nodes.

    Raises:
        UnsupportedModelError: a sparse tensor is damaged or too large.
    """
    changed: list[str] = []
    for graph in graphs(model):
        changed.extend(_constants_of(graph))
        _densify(graph)
        _last_of_each_name(graph)
        _unlist(graph)
    model.ir_version = max(model.ir_version, _OLDEST_IR)
    return tuple(changed)


def _constants_of(graph: GraphProto) -> list[str]:
    kept: list[NodeProto] = []
    constants: list[str] = []
    for node in graph.node:
        tensor = _constant_tensor(node) if node.op_type == "Constant" else None
        if tensor is None:
            kept.append(_copy(node))
            continue
        tensor.name = node.output[0]
        graph.initializer.append(tensor)
        constants.append(node.name)
    if constants:
        del graph.node[:]
        graph.node.extend(kept)
    return constants


def _last_of_each_name(graph: GraphProto) -> None:
    """Remove all but the last definition of a constant that is defined several times, as ONNX Runtime does."""
    last = {tensor.name: index for index, tensor in enumerate(graph.initializer)}
    if len(last) == len(graph.initializer):
        return
    _log.warning(
        "%d constants are defined more than once; the last definition counts", len(graph.initializer) - len(last)
    )
    for index in reversed(range(len(graph.initializer))):
        if last[graph.initializer[index].name] != index:
            del graph.initializer[index]


def _copy(node: NodeProto) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    return copy


def _constant_tensor(node: NodeProto) -> TensorProto | None:
    attribute = next((item for item in node.attribute if item.name.startswith(("value", "sparse_value"))), None)
    if attribute is None:
        return None
    if attribute.type == AttributeProto.TENSOR:
        tensor = TensorProto()
        tensor.CopyFrom(attribute.t)
        return tensor
    if attribute.type == AttributeProto.SPARSE_TENSOR:
        return _dense(attribute.sparse_tensor)
    value = helper.get_attribute_value(attribute)
    dtypes = {
        AttributeProto.FLOAT: np.float32,
        AttributeProto.FLOATS: np.float32,
        AttributeProto.INT: np.int64,
        AttributeProto.INTS: np.int64,
    }
    dtype = dtypes.get(attribute.type)
    return numpy_helper.from_array(np.asarray(value, dtype)) if dtype else None


def _densify(graph: GraphProto) -> None:
    for sparse in graph.sparse_initializer:
        graph.initializer.append(_dense(sparse))
    del graph.sparse_initializer[:]


def _dense(sparse: SparseTensorProto) -> TensorProto:
    what = f"sparse tensor '{sparse.values.name}'"
    count = element_count(sparse.dims, what)
    if count * element_bits(sparse.values.data_type) // 8 > MAX_MODEL_BYTES:
        raise UnsupportedModelError(f"{what} is too large to be made dense")
    values, indices = to_array(sparse.values).ravel(), to_array(sparse.indices)
    flat = _flat_indices(indices, tuple(sparse.dims))
    if len(flat) != len(values) or (len(flat) and not (flat.min() >= 0 and flat.max() < count)):
        raise UnsupportedModelError(f"{what} has indices outside its shape; the file is damaged")
    dense = np.zeros(count, values.dtype)
    dense[flat] = values
    return numpy_helper.from_array(dense.reshape(tuple(sparse.dims)), sparse.values.name)


def _flat_indices(indices: Array, dims: tuple[int, ...]) -> Array:
    """Linear indices of the values. ONNX stores either these, or one row of coordinates per value."""
    if indices.ndim == 1:
        return indices
    strides = np.cumprod((1, *dims[:0:-1]), dtype=np.int64)[::-1]
    inside = bool(((indices >= 0) & (indices < np.asarray(dims))).all())
    return indices @ strides if inside and indices.shape[1:] == (len(dims),) else np.full(1, -1)


def _unlist(graph: GraphProto) -> None:
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in constants]
    if len(inputs) != len(graph.input):
        copies = [type(value).FromString(value.SerializeToString()) for value in inputs]
        del graph.input[:]
        graph.input.extend(copies)
