"""ONNX's inference of shapes for models that may be wrong: a slice of a dimension of negative size ends its process.

A window that is larger than its image gives such a size, and so may a damaged file. So between a slice and what it
reads stands a node of an operator of its own, whose result has its operand's type, but no shape where a size is
negative. Who reads the shapes finds the size in front of it.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import Any

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, defs, helper, shape_inference

from sartor.onnx_model.graphs.negative_sizes import has_negative, may_have_negative
from sartor.onnx_model.graphs.walk import drop_named, graphs, subgraphs
from sartor.onnx_model.operator_types.registered import operator_schema

_DOMAIN, _OPERATOR, _PREFIX = "sartor.checked", "Checked", "sartor.checked:"
_INTEGERS = (TensorProto.INT32, TensorProto.INT64)


def inferred_types(model: ModelProto, known: ModelProto | None = None, **options: bool) -> ModelProto:
    """As ``onnx.shape_inference.infer_shapes``, of sizes that may be negative as well.

    Args:
        model: of which types are inferred.
        known: the same with the types that inference finds without propagation of data, if that is asked for.
        options: of ``onnx``.

    Raises:
        InferenceError: as ``onnx`` does.
    """
    if not _may_slice_negative(model):
        return shape_inference.infer_shapes(model, **options)
    # Data are not propagated through nodes of such operators: vectors that may be shapes are read as they are.
    read = _vectors(known or inferred_types(model)) if options.get("data_prop") else frozenset()
    _register()
    guarded = ModelProto()
    guarded.CopyFrom(model)
    guarded.opset_import.append(helper.make_opsetid(_DOMAIN, 1))
    for graph in graphs(guarded.graph):
        _guard(graph, read)
    inferred: ModelProto = shape_inference.infer_shapes(guarded, **options)
    for graph in graphs(inferred.graph):
        _unguard(graph)
    return inferred


def slices_negative(node: NodeProto, kind: TypeProto) -> bool:
    """Whether a node slices a value of a type with a negative size."""
    return _is_slice(node) and has_negative(kind)


def bodies_slice_negative(node: NodeProto) -> bool:
    """Whether a node has a body with slices, and with a value of a negative size, as far as its types are known."""
    bodies = [graph for body in subgraphs(node) for graph in graphs(body)]
    return any(map(_is_slice, (inner for graph in bodies for inner in graph.node))) and any(
        has_negative(value.type) for graph in bodies for value in graph.value_info
    )


def _is_slice(node: NodeProto) -> bool:
    return node.op_type == "Slice" and not node.domain and len(node.input) > 0


def _may_slice_negative(model: ModelProto) -> bool:
    """Whether there are slices, and what may have a negative size: checking takes as long as inference does."""
    every = [*graphs(model.graph)]
    return any(node.op_type == "Slice" for graph in every for node in graph.node) and may_have_negative(every)


def _vectors(model: ModelProto) -> frozenset[str]:
    """Values of integers that may be vectors, none of them of a negative size, and constants, which have no type."""
    every = [*graphs(model.graph)]
    values = (value for graph in every for value in (*graph.input, *graph.value_info, *graph.output))
    constants = (tensor.name for graph in every for tensor in graph.initializer)
    return frozenset((*constants, *(value.name for value in values if _may_be_vector(value.type))))


def _may_be_vector(kind: TypeProto) -> bool:
    tensor = kind.tensor_type
    is_vector = not tensor.HasField("shape") or len(tensor.shape.dim) == 1
    return tensor.elem_type in _INTEGERS and is_vector and not has_negative(kind)


def _guard(graph: GraphProto, read: Collection[str]) -> None:
    """Put the nodes in front of the slices of a graph, but for those of values that are read as they are."""
    guarded = GraphProto()
    for node in graph.node:
        if _is_slice(node) and node.input[0] not in read:
            checked = f"{_PREFIX}{node.output[0]}"
            guarded.node.append(helper.make_node(_OPERATOR, node.input[:1], [checked], node.name, domain=_DOMAIN))
            node.input[0] = checked
        guarded.node.append(node)
    if len(guarded.node) > len(graph.node):
        del graph.node[:]
        graph.node.extend(guarded.node)


def _unguard(graph: GraphProto) -> None:
    """Remove the nodes again, with the types of what they compute."""
    added = [index for index, node in enumerate(graph.node) if node.domain == _DOMAIN]
    for index in reversed(added):
        # The slice behind it.
        graph.node[index + 1].input[0] = graph.node[index].input[0]
        del graph.node[index]
    if added:
        drop_named(graph.value_info, lambda name: name.startswith(_PREFIX))


@cache
def _register() -> None:
    """Make the operator known to ONNX's inference, for all of the process's life."""
    defs.register_schema(operator_schema(_OPERATOR, _DOMAIN, _infer))


def _infer(context: Any) -> None:
    kind = context.get_input_type(0)
    if isinstance(kind, TypeProto) and has_negative(kind):
        kind = TypeProto(tensor_type=TypeProto.Tensor(elem_type=kind.tensor_type.elem_type))
    if kind is not None:
        context.set_output_type(0, kind)
