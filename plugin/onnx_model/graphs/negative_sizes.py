"""Which models may have values of a negative size, as far as ONNX's inference of shapes can find such sizes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, TypeProto

from sartor.onnx_model.graphs.tensor_data import to_array

# Results of these may have a negative size where their operands have none: windows and pads that do not fit.
_SOURCES = frozenset(
    {
        *("AveragePool", "Col2Im", "Conv", "ConvInteger", "ConvTranspose", "DeformConv", "LpPool", "MaxPool"),
        *("MaxUnpool", "Multinomial", "Pad", "QLinearConv", "Resize", "RoiAlign", "STFT", "Upsample"),
    }
)
SIZED = frozenset({"AffineGrid", "CenterCropPad", "DFT", "Expand", "Split", "TopK"})
"""Operators whose second operand says sizes; an old Split has an attribute for them."""
_PARTS = "split"

# What inference propagates data through: sizes themselves, which it knows to be right, what is negative only if an
# operand is, what has numbers of its first operand, and what may be negative in any case.
MEASURED = frozenset({"Shape", "Size"})
COMBINED = frozenset({"Add", "Concat", "Mul"})
PASSED = frozenset({"Cast", "Gather", "Slice", "Squeeze", "Unsqueeze"})
SUBTRACTED = frozenset({"Sub"})

_DATA = frozenset({"raw_data", "int32_data", "int64_data", "float_data", "double_data", "uint64_data"})


def has_negative(kind: TypeProto) -> bool:
    """Whether a type has a negative size."""
    return any(dim.dim_value < 0 for dim in kind.tensor_type.shape.dim)


def may_have_negative(every: Sequence[GraphProto]) -> bool:
    """Whether a model may have values of a negative size.

    Args:
        every: its graph, and those of bodies. Descriptions of computed values are not read: they are open where a file
            had a negative size.
    """
    nodes = [node for graph in every for node in graph.node]
    if not _SOURCES.isdisjoint(node.op_type for node in nodes):
        return True
    if any(has_negative(value.type) for graph in every for value in graph.input):
        return True
    sized = [node for node in nodes if node.op_type in SIZED]
    if any(size < 0 for node in sized for item in node.attribute if item.name == _PARTS for size in item.ints):
        return True
    return _any_negative([node.input[1] for node in sized if len(node.input) > 1], every)


def _any_negative(names: Iterable[str], every: Sequence[GraphProto]) -> bool:
    """Whether inference may find a negative number in one of some values. Bodies may have a name twice."""
    makers = defaultdict[str, list[NodeProto]](list)
    constants = defaultdict[str, list[TensorProto]](list)
    for graph in every:
        for tensor in graph.initializer:
            constants[tensor.name].append(tensor)
        for node in graph.node:
            for name in node.output:
                makers[name].append(node)
    waiting, seen = list(names), set[str]()
    while waiting:
        name = waiting.pop()
        if not name or name in seen:
            continue
        seen.add(name)
        if any(map(_is_negative, constants[name])):
            return True
        for node in makers[name]:
            if node.op_type in SUBTRACTED or _is_negative_constant(node):
                return True
            if node.op_type in COMBINED | PASSED:
                waiting += node.input if node.op_type in COMBINED else node.input[:1]
    return False


def _is_negative(tensor: TensorProto) -> bool:
    """Whether a vector or a number is negative somewhere, as far as it has values: those of weights may be left out."""
    if len(tensor.dims) > 1 or tensor.data_type == TensorProto.STRING or not _has_values(tensor):
        return False
    return bool((to_array(tensor) < 0).any())


def _has_values(tensor: TensorProto) -> bool:
    return any(kind.name in _DATA for kind, _ in tensor.ListFields())


def _is_negative_constant(node: NodeProto) -> bool:
    if node.op_type != "Constant":
        return False
    return any(
        _is_negative(item.t) or bool((np.array([item.i, item.f, *item.ints, *item.floats]) < 0).any())
        for item in node.attribute
    )
