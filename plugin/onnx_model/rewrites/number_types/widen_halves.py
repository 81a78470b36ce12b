"""Models of half precision as models of float32 with casts at their inputs and outputs, for CPUs.

CPUs multiply numbers of 16 bits no faster than f32, or not at all. In float32 each result is at least as exact as in
the type that the model declares. What a model rounds on purpose stays rounded: where it casts to half precision, and
before operators whose result a rounding decides, such as comparisons.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper

from sartor.devices import is_cpu
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, rename_reads
from sartor.onnx_model.graphs.halves import HALVES
from sartor.onnx_model.graphs.infer import infer_shapes
from sartor.onnx_model.graphs.limits import MAX_MODEL_BYTES
from sartor.onnx_model.graphs.tensor_data import to_array
from sartor.onnx_model.graphs.walk import graphs, subgraphs
from sartor.onnx_model.operator_types.moving import RESHAPING

_WIDER = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE})
_FLOATS = HALVES | _WIDER
# A number that falls to the other side is another result, and so are two that rounding makes equal.
_DECIDING = frozenset(
    {
        *("ArgMax", "ArgMin", "Ceil", "Equal", "Floor", "Greater", "GreaterOrEqual", "Hardmax", "IsInf", "Less"),
        *("LessOrEqual", "Mod", "NonZero", "QuantizeLinear", "Round", "Sign", "TopK", "Unique"),
    }
)
# What appends to a cache that callers keep, or takes a part of it.
_MOVING = RESHAPING - {"Flatten"} | {"Concat", "Gather", "ScatterND", "Slice", "Transpose"}
# Attributes that name the type of results, or of sums within an operator.
_TYPE_ATTRIBUTES = frozenset({"dtype", "output_dtype", "softmax_precision", "stash_type"})


def widens_halves(devices: Sequence[str]) -> bool:
    """Whether half precision is computed in float32 on kinds of devices: GPUs multiply f16 faster."""
    return all(map(is_cpu, devices))


def fits_widened(model: ModelProto) -> bool:
    """Whether one message may hold the model's constants of half precision in float32."""
    tensors = [tensor for graph in graphs(model) for tensor in graph.initializer]
    return sum(_widened_bytes(tensor) for tensor in tensors) <= MAX_MODEL_BYTES


def _widened_bytes(tensor: TensorProto) -> int:
    return math.prod(tensor.dims) * np.dtype(np.float32).itemsize if tensor.data_type in HALVES else tensor.ByteSize()


def widen_halves(model: ModelProto) -> tuple[str, ...]:
    """Compute values of float16 and bfloat16 in float32, in place; callers pass and get what the model declares.

    Tables of float16 of which nodes take rows keep their type, as do caches that are passed on. Returns the names of
    the nodes that round, or read what is not widened.
    """
    infer_shapes(model)
    if not any(kind in HALVES for graph in graphs(model) for kind in _types(graph).values()):
        return ()
    door = _Door(_widen_inputs(model.graph))
    changed = _widen_graph(model.graph, {}, None, door)
    _round_outputs(model.graph, door.moved)
    infer_shapes(model)
    return changed or tuple(door.passed.values())


@dataclass(frozen=True)
class _Door:
    """What the main graph takes and gives.

    Attributes:
        passed: names of inputs by those of what they were cast to.
        moved: outputs that only elements of inputs were moved to, which keep their type.
    """

    passed: Mapping[str, str] = field(default_factory=dict)
    moved: set[str] = field(default_factory=set)


def _types(graph: GraphProto) -> dict[str, int]:
    """Element types of a graph's own tensors, by name."""
    described = (*graph.value_info, *graph.input, *graph.output)
    values = {value.name: value.type.tensor_type.elem_type for value in described}
    return values | {tensor.name: tensor.data_type for tensor in graph.initializer}


def _widen_inputs(graph: GraphProto) -> dict[str, str]:
    """Cast inputs for all that reads them; returns their names by those of the results."""
    editor = GraphEditor(graph)
    kinds = {value.name: value.type for value in graph.input if value.type.tensor_type.elem_type in HALVES}
    widened = {name: editor.fresh(f"{name}/wide") for name in kinds if not editor.is_constant(name)}
    rename_reads(graph, widened)
    casts = [_cast(name, wide, TensorProto.FLOAT, editor) for name, wide in widened.items()]
    editor.set_nodes([*casts, *editor.nodes])
    for name, wide in widened.items():
        graph.value_info.add(name=wide, type=kinds[name])
    return {wide: name for name, wide in widened.items()}


def _cast(source: str, result: str, kind: int, editor: GraphEditor) -> NodeProto:
    return helper.make_node("Cast", [source], [result], name=editor.fresh_node(f"{result}/cast"), to=kind)


def _widen_graph(
    graph: GraphProto, around: Mapping[str, int], outer: GraphEditor | None, door: _Door
) -> tuple[str, ...]:
    """Widen what a graph computes, and the bodies in it.

    Args:
        graph: changed in place, but for the inputs and outputs of the main graph.
        around: declared element types of the values of the graphs around it.
        outer: editor of the graph around it, None for the main graph.
        door: of the main graph; of others nothing.
    """
    editor, types = GraphEditor(graph, outer), {**around, **_types(graph)}
    bodies = [body for node in graph.node for body in subgraphs(node)]
    inner = [name for body in bodies for name in _widen_graph(body, types, editor, _Door())]
    editor.refresh()
    tables = _tables(graph, editor)
    changed = editor.rewrite(_Nodes(editor, types, tables, door).widened)
    for node in graph.node:
        _widen_attributes(node)
    for tensor in graph.initializer:
        if tensor.name not in tables:
            _widen_tensor(tensor)
    own = () if outer is None else (*graph.input, *graph.output)
    for value in (*graph.value_info, *own):
        if value.name not in door.moved:
            _widen_type(value.type)
    return (*inner, *changed)


def _tables(graph: GraphProto, editor: GraphEditor) -> frozenset[str]:
    """Initialisers of which nodes take rows, and that nothing else reads. IREE has no constants of bfloat16."""
    halves = [tensor.name for tensor in graph.initializer if tensor.data_type == TensorProto.FLOAT16]
    return frozenset(
        name
        for name in halves
        if not editor.is_output(name)
        and editor.consumers(name)
        and all(consumer.op_type == "Gather" and consumer.input[0] == name for consumer in editor.consumers(name))
    )


class _Nodes:
    """Rewrites the nodes of one graph for which it is not enough that the types of their operands change."""

    def __init__(self, editor: GraphEditor, types: Mapping[str, int], tables: frozenset[str], door: _Door) -> None:
        self._editor, self._types, self._tables, self._door = editor, types, tables, door
        self._exact = {*door.passed, *(tensor.name for tensor in editor.graph.initializer)}
        self._rounded: dict[str, str] = {}
        # Values that the model casts to a wider type, whose numbers have the type from which they are cast.
        self._cast_from: dict[str, int] = {}

    def widened(self, node: NodeProto) -> list[NodeProto] | None:
        """What replaces a node; None if it stays."""
        emit, kind = Emitter(self._editor, node), self._type(node.output[0])
        if node.output[0] in self._door.passed:
            return None
        if node.op_type in RESHAPING and node.input[0] in self._cast_from:
            self._cast_from[node.output[0]] = self._cast_from[node.input[0]]
        if node.op_type in ("Cast", "CastLike"):
            self._cast(emit, kind)
        elif node.op_type == "BitCast":
            self._bits(emit, kind)
        elif node.op_type == "Gather" and node.input[0] in self._tables:
            self._row(emit)
        elif self._is_passed_on(node):
            self._moved(emit, kind)
        elif node.op_type in _DECIDING or (node.op_type == "MaxPool" and len(node.output) > 1):
            self._decided(emit)
        return emit.nodes or None

    def _type(self, name: str) -> int:
        return self._types.get(name, TensorProto.UNDEFINED)

    def _cast(self, emit: Emitter, kind: int) -> None:
        node, source = emit.node, self._type(emit.node.input[0])
        kind = kind or attributes(node).get("to", TensorProto.UNDEFINED)
        numbers = self._cast_from.get(node.input[0], source)
        if kind in _WIDER and numbers in HALVES and node.input[0] not in self._exact:
            self._cast_from[node.output[0]] = numbers
        if kind in HALVES and source != kind:
            self._exact.add(node.output[0])
            narrow = emit("Cast", node.input[0], part="narrow", to=kind)
            emit("Cast", narrow, output=node.output[0], to=TensorProto.FLOAT)
        elif source in HALVES and kind in (source, TensorProto.FLOAT):
            emit("Identity", node.input[0], output=node.output[0])
        elif numbers in HALVES and kind not in _FLOATS:
            self._decided(emit)

    def _bits(self, emit: Emitter, kind: int) -> None:
        """The bits of numbers that are half precision."""
        node, source = emit.node, self._type(emit.node.input[0])
        operand = node.input[0]
        if source in HALVES:
            operand = emit("Cast", operand, part="narrow", to=source)
        if kind in HALVES:
            emit("Cast", emit.copy([operand]), part="wide", output=node.output[0], to=TensorProto.FLOAT)
        elif source in HALVES:
            emit.copy([operand], node.output[0])

    def _row(self, emit: Emitter) -> None:
        row = emit.copy([*emit.node.input])
        emit("Cast", row, part="wide", output=emit.node.output[0], to=TensorProto.FLOAT)

    def _is_passed_on(self, node: NodeProto) -> bool:
        """Whether a node moves elements of an input that callers pass to an output that they get."""
        is_moved = node.op_type in _MOVING and any(name in self._door.passed for name in node.input)
        is_output = self._editor.is_output(node.output[0]) and not self._editor.is_nested
        return is_moved and is_output and self._type(node.output[0]) in HALVES

    def _moved(self, emit: Emitter, kind: int) -> None:
        node, operands, passed = emit.node, list[str](), self._door.passed
        for name in node.input:
            is_computed = self._type(name) in HALVES and name not in passed
            operands.append(emit("Cast", name, part="narrow", to=kind) if is_computed else passed.get(name, name))
        emit.nodes.append(_with_inputs(node, operands))
        self._door.moved.add(node.output[0])

    def _decided(self, emit: Emitter) -> None:
        operands = [self._round(emit, name) for name in emit.node.input]
        if operands != [*emit.node.input]:
            emit.nodes.append(_with_inputs(emit.node, operands))

    def _round(self, emit: Emitter, name: str) -> str:
        """A value as the model's own type has it."""
        own = self._type(name)
        kind = self._cast_from.get(name, own)
        if kind not in HALVES or name in self._exact:
            return name
        if name not in self._rounded:
            narrow = emit("Cast", name, part="narrow", to=kind)
            wide = TensorProto.DOUBLE if own == TensorProto.DOUBLE else TensorProto.FLOAT
            self._rounded[name] = emit("Cast", narrow, part="rounded", to=wide)
        return self._rounded[name]


def _with_inputs(node: NodeProto, inputs: Iterable[str]) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.input[:] = inputs
    return copy


def _widen_attributes(node: NodeProto) -> None:
    for attribute in node.attribute:
        for tensor in (*([attribute.t] if attribute.HasField("t") else ()), *attribute.tensors):
            _widen_tensor(tensor)
        if attribute.name in _TYPE_ATTRIBUTES and attribute.i in HALVES:
            attribute.i = TensorProto.FLOAT
        if attribute.type == AttributeProto.TYPE_PROTO:
            _widen_type(attribute.tp)


def _widen_tensor(tensor: TensorProto) -> None:
    if tensor.data_type in HALVES:
        tensor.CopyFrom(numpy_helper.from_array(to_array(tensor).astype(np.float32), tensor.name))


def _widen_type(kind: TypeProto) -> None:
    if kind.HasField("sequence_type"):
        _widen_type(kind.sequence_type.elem_type)
    elif kind.HasField("optional_type"):
        _widen_type(kind.optional_type.elem_type)
    elif kind.HasField("tensor_type") and kind.tensor_type.elem_type in HALVES:
        kind.tensor_type.elem_type = TensorProto.FLOAT


def _round_outputs(graph: GraphProto, moved: Collection[str]) -> None:
    """Give callers the types that the model declares; an input that is returned stays as it is.

    What was only moved has the type already, and its readers get it widened.
    """
    editor, inputs = GraphEditor(graph), {value.name for value in graph.input}
    kinds = {value.name: value.type.tensor_type.elem_type for value in graph.output if value.name not in inputs}
    names = {name: editor.fresh(f"{name}/wide") for name, kind in kinds.items() if kind in HALVES}
    rename_reads(graph, names)
    nodes, computed = list[NodeProto](), {name: wide for name, wide in names.items() if name not in moved}
    for node in editor.nodes:
        nodes.append(node)
        node.output[:] = [computed.get(name, name) for name in node.output]
        nodes += [_cast(name, names[name], TensorProto.FLOAT, editor) for name in node.output if name in moved]
    for tensor in graph.initializer:
        tensor.name = computed.get(tensor.name, tensor.name)
    nodes += [_cast(wide, name, kinds[name], editor) for name, wide in computed.items()]
    editor.set_nodes(nodes)
