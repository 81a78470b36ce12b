"""Takes a computed length out of a model's graph: it becomes the size of inputs, and an output.

So what is behind it has any size, as behind an input, and the module has to compute the output before it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, shape_inference

from sartor.onnx_model.dynamic.computed_length import ComputedLength, constant_of, forwarded
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor
from sartor.onnx_model.graphs.infer import without_weights
from sartor.onnx_model.graphs.walk import describe_node, subgraphs

LENGTH = "sartor.length"
"""The output that holds the length."""
ROUNDED = "sartor.rounded"
"""How the names begin of outputs that are rounded on the way to the length, of the model that computes it alone."""
_SYMBOL = "length"
_Dims = tuple[int | str, ...]


@dataclass(frozen=True)
class CutLength:
    """What a model has in place of a computed length.

    Attributes:
        symbol: the size of inputs.
        places: inputs that have it, with their axes, which the model cut to the length itself.
        unread: another input that has it, as there is no such one; empty if there is.
        node: what computes the length.
    """

    symbol: str
    places: tuple[tuple[str, int], ...]
    unread: str
    node: str


@dataclass(frozen=True)
class _Slice:
    """A node that takes as much of an input as the length says.

    Attributes:
        node: the node.
        axis: of the input.
        dims: of the input.
    """

    node: NodeProto
    axis: int
    dims: _Dims

    @property
    def input(self) -> str:
        return self.node.input[0]


def cut_length(model: ModelProto, length: ComputedLength) -> CutLength:
    """Take a length out of a model, in place.

    Args:
        model: as it was read.
        length: as ``computed_length`` found it.
    """
    editor = GraphEditor(model.graph)
    node = editor.producer(length.value)
    if node is None:
        raise ValueError(f"nothing computes '{length.value}'")
    own = _unused_symbol(model)
    slices = [*_cut_inputs(editor, length), *_cut_noise(model, editor, own)]
    symbol = next((str(cut.dims[cut.axis]) for cut in slices if cut.dims[cut.axis] != own), own)
    places = tuple((cut.input, cut.axis) for cut in slices)
    unread = "" if places else editor.fresh(f"{length.value}/size")
    if unread:
        model.graph.input.append(helper.make_tensor_value_info(unread, TensorProto.INT8, [symbol]))
    source, axis = places[0] if places else (unread, 0)
    emit = Emitter(editor, node)
    size = emit("Gather", emit("Shape", source, part="sized"), emit.constant([axis], "axis"), part="size", axis=0)
    if length.dtype != TensorProto.INT64:
        size = emit("Cast", size, part="typed", to=length.dtype)
    size = emit("Reshape", size, emit.constant(np.ones(length.rank, np.int64), "shape"), part="length")
    cuts = {cut.node.output[0]: cut.input for cut in slices}
    _rename(model, {length.value: size, **cuts}, cuts, emit.nodes, node)
    _give(model, editor, length.value)
    for cut in slices:
        dims = [symbol if at == cut.axis else dim for at, dim in enumerate(cut.dims)]
        _set_dims(model, cut.input, dims)
    return CutLength(symbol, places, unread, describe_node(node))


def keep_length(model: ModelProto, length: ComputedLength) -> None:
    """Leave nothing of a model but what computes the length, in place; it gives that, and what is rounded on the way to
    it."""
    graph = model.graph
    del graph.output[:]
    _give(model, GraphEditor(graph), length.value)
    for index, name in enumerate(length.rounded):
        output = f"{ROUNDED}:{index}"
        graph.node.append(helper.make_node("Identity", [name], [output], name=output))
        graph.output.append(helper.make_tensor_value_info(output, TensorProto.FLOAT, None))
    needed, kept = {value.name for value in graph.output}, list[NodeProto]()
    for node in reversed(graph.node):
        if not needed.isdisjoint(node.output):
            kept.append(node)
            needed.update(name for reader in (node, *_inner(node)) for name in reader.input)
    nodes = [*map(_copied, reversed(kept))]
    del graph.node[:]
    graph.node.extend(nodes)
    for values in (graph.input, graph.value_info):
        for value in [value for value in values if value.name not in needed]:
            values.remove(value)
    for tensor in [tensor for tensor in graph.initializer if tensor.name not in needed]:
        graph.initializer.remove(tensor)


def _unused_symbol(model: ModelProto) -> str:
    """A name for the length that no dimension of the model has, which may be a length of another kind."""
    values = (*model.graph.input, *model.graph.value_info, *model.graph.output)
    taken = {dim.dim_param for value in values for dim in value.type.tensor_type.shape.dim}
    numbered = (f"{_SYMBOL}_{number}" for number in itertools.count(2))
    return next(name for name in itertools.chain((_SYMBOL,), numbered) if name not in taken)


def _inner(node: NodeProto) -> Iterator[NodeProto]:
    for body in subgraphs(node):
        for other in body.node:
            yield other
            yield from _inner(other)


def _copied(node: NodeProto) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    return copy


def _give(model: ModelProto, editor: GraphEditor, value: str) -> None:
    """Make an integer of one element the output that holds the length."""
    shape, wide = editor.add_constant(f"{LENGTH}/shape", np.ones(1, np.int64)), f"{LENGTH}/wide"
    model.graph.node.append(helper.make_node("Cast", [value], [wide], name=wide, to=TensorProto.INT64))
    model.graph.node.append(helper.make_node("Reshape", [wide, shape], [LENGTH], name=LENGTH))
    model.graph.output.append(helper.make_tensor_value_info(LENGTH, TensorProto.INT64, [1]))


def _cut_inputs(editor: GraphEditor, length: ComputedLength) -> Iterator[_Slice]:
    """The slices of inputs that end at the length, which nothing else reads."""
    declared = {value.name: _dims(value.type.tensor_type.shape.dim) for value in editor.graph.input}
    every = [dim for dims in declared.values() for dim in dims]
    for name, dims in declared.items():
        readers = editor.consumers(name)
        axis = _cut_axis(readers[0], editor, length) if len(readers) == 1 else None
        if axis is not None and axis < len(dims) and isinstance(dims[axis], str) and every.count(dims[axis]) == 1:
            yield _Slice(readers[0], axis, dims)


def _cut_axis(node: NodeProto, editor: GraphEditor, length: ComputedLength) -> int | None:
    """The axis along which a node takes the first elements, as many as the length says; None for any other node."""
    if node.domain or node.op_type != "Slice" or len(node.input) < 4:
        return None
    starts, axes = (constant_of(node.input[operand], editor) for operand in (1, 3))
    steps = constant_of(node.input[4], editor) if len(node.input) > 4 and node.input[4] else np.ones(1)
    is_first = starts is not None and steps is not None and not np.any(starts) and np.all(steps == 1)
    if not is_first or axes is None or axes.size != 1 or int(axes.flat[0]) < 0:
        return None
    return int(axes.flat[0]) if _is_length(node.input[2], editor, length) else None


def _is_length(name: str, editor: GraphEditor, length: ComputedLength) -> bool:
    """Whether a value is the length in another shape or type."""
    copies = forwarded(name, editor), forwarded(length.value, editor)
    return name == length.value or copies[0] == copies[1]


def _cut_noise(model: ModelProto, editor: GraphEditor, symbol: str) -> Iterator[_Slice]:
    """The slices by which ``feed_noise`` gives a value as much noise as it has elements, which is as many as a symbol
    says, if all other sizes of that are known."""
    undeclared = [value for value in model.graph.input if not value.type.tensor_type.HasField("shape")]
    if not undeclared:
        return
    # Of dimensions alone: which one is not known tells the axis.
    known = shape_inference.infer_shapes(without_weights(model))
    shapes = {
        value.name: _dims(value.type.tensor_type.shape.dim)
        for value in known.graph.value_info
        if value.type.tensor_type.HasField("shape")
    }
    symbols = {dim for value in model.graph.input for dim in _dims(value.type.tensor_type.shape.dim)} - {""}
    for value in undeclared:
        reader = editor.only_consumer(value.name)
        if reader is None or reader.domain or reader.op_type != "Slice" or len(reader.input) != 3:
            continue
        shape = editor.producer(reader.input[2])
        if shape is None or shape.op_type != "Shape" or shape.input[0] not in shapes:
            continue
        dims = shapes[shape.input[0]]
        unknown = [axis for axis, dim in enumerate(dims) if not isinstance(dim, int) and dim not in symbols]
        if len(unknown) == 1:
            yield _Slice(reader, unknown[0], (*dims[: unknown[0]], symbol, *dims[unknown[0] + 1 :]))


def _dims(dims: Sequence[object]) -> _Dims:
    return tuple(int(dim.dim_value) or str(dim.dim_param) for dim in dims)  # type: ignore[attr-defined]


def _rename(
    model: ModelProto, renamed: dict[str, str], dropped: dict[str, str], new: list[NodeProto], behind: NodeProto
) -> None:
    """Rename what nodes read, and write new nodes behind one."""
    nodes = list[NodeProto]()
    for node in model.graph.node:
        if not dropped.keys().isdisjoint(node.output):
            continue
        copy = _copied(node)
        copy.input[:] = [renamed.get(name, name) for name in copy.input]
        nodes.append(copy)
        if node.output[0] == behind.output[0]:
            nodes += new
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _set_dims(model: ModelProto, name: str, dims: Sequence[int | str]) -> None:
    """Declare the dimensions of an input."""
    (value,) = (value for value in model.graph.input if value.name == name)
    value.type.CopyFrom(helper.make_tensor_type_proto(value.type.tensor_type.elem_type, dims))
