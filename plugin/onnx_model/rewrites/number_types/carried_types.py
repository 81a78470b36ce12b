"""Element types that IREE's importer lacks, carried by types that it has.

Unsigned words of 16 and 32 bits are computed in the next wider signed type and cut off where they may overflow; those
of 64 bits in int64, which has the same bits; integers below 8 bits in a byte; small floats as the codes that store
them. What is passed in and out has the size of the declared type, so callers notice nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, rename_reads
from sartor.onnx_model.graphs.infer import infer_shapes
from sartor.onnx_model.graphs.walk import describe_node, graphs, subgraphs
from sartor.onnx_model.operator_types.alike import WITH_BODIES
from sartor.onnx_model.operator_types.moving import MOVING
from sartor.onnx_model.rewrites.number_types import unsigned_words
from sartor.onnx_model.rewrites.number_types.small_floats import SMALL_FLOATS, check_rounding, decode, encode
from sartor.onnx_model.rewrites.number_types.unsigned_words import RANGES


@dataclass(frozen=True)
class Carrier:
    """How a type is carried.

    Attributes:
        stored: ONNX type of what is passed in and out, of the same size.
        computed: ONNX type within the model.
    """

    stored: int
    computed: int


CARRIERS: Mapping[int, Carrier] = {
    TensorProto.UINT16: Carrier(TensorProto.INT16, TensorProto.INT32),
    TensorProto.UINT32: Carrier(TensorProto.INT32, TensorProto.INT64),
    TensorProto.UINT64: Carrier(TensorProto.INT64, TensorProto.INT64),
    TensorProto.INT4: Carrier(TensorProto.INT8, TensorProto.INT8),
    TensorProto.INT2: Carrier(TensorProto.INT8, TensorProto.INT8),
    TensorProto.UINT4: Carrier(TensorProto.UINT8, TensorProto.UINT8),
    TensorProto.UINT2: Carrier(TensorProto.UINT8, TensorProto.UINT8),
    **{element: Carrier(TensorProto.UINT8, TensorProto.UINT8) for element in SMALL_FLOATS},
}
# How many of a byte's bits count.
_BITS: Mapping[int, int] = {
    TensorProto.INT4: 4,
    TensorProto.UINT4: 4,
    TensorProto.INT2: 2,
    TensorProto.UINT2: 2,
    TensorProto.FLOAT4E2M1: 4,
}
_SIGNED = (TensorProto.INT4, TensorProto.INT2)
_FRACTIONS = frozenset(
    {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE, *SMALL_FLOATS},
)

# What only moves elements does so with codes as with values.
_MOVING = MOVING | {"GatherElements", "GatherND", "ReverseSequence", "Shape", "Size", "Trilu", "Where"}
# They hand values on to their bodies and back.


def carry_types(model: ModelProto) -> tuple[str, ...]:
    """Carry every value of a type in ``CARRIERS`` by another; returns the names of the nodes that changed.

    Raises:
        UnsupportedModelError: naming a node that computes with such values, and cannot be carried out on others.
    """
    infer_shapes(model)
    if not any(kind in CARRIERS for graph in graphs(model) for kind in _declared(graph).values()):
        return ()
    types = _declared(model.graph)
    changed = _carried(model.graph, {}, None)
    _convert_outputs(model, types)
    _convert_inputs(model, types)
    infer_shapes(model)
    return changed


def _declared(graph: GraphProto) -> dict[str, int]:
    """Element types of a graph's own values, by name."""
    described = (*graph.value_info, *graph.input, *graph.output)
    values = {value.name: value.type.tensor_type.elem_type for value in described}
    # A body may return a value of the graph around it without a type.
    values = {name: kind for name, kind in values.items() if kind}
    return values | {tensor.name: tensor.data_type for tensor in graph.initializer}


def _carried(graph: GraphProto, around: Mapping[str, int], outer: GraphEditor | None) -> tuple[str, ...]:
    """Carry the values of a graph and of the bodies in it, which is given and gives what is computed with.

    Args:
        graph: changed in place, but for the inputs and outputs of the main graph, which callers see.
        around: declared element types of the values of the graphs around it.
        outer: editor of the graph around it, None for the main graph.
    """
    editor, types = GraphEditor(graph, outer), {**around, **_declared(graph)}
    inner = [name for node in graph.node for body in subgraphs(node) for name in _carried(body, types, editor)]
    editor.refresh()
    changed = editor.rewrite(lambda node: _rewritten(node, editor, types))
    _convert_constants(graph, types)
    del graph.value_info[:]
    for value in (*graph.input, *graph.output) if outer is not None else ():
        if types.get(value.name) in CARRIERS:
            value.type.tensor_type.elem_type = CARRIERS[types[value.name]].computed
    return (*inner, *changed)


def _rewritten(node: NodeProto, editor: GraphEditor, types: Mapping[str, int]) -> list[NodeProto] | None:
    names = [name for name in (*node.input, *node.output) if types.get(name) in CARRIERS]
    if not names or node.op_type in _MOVING or node.op_type in WITH_BODIES:
        return None
    emit = Emitter(editor, node)
    rule = _RULES.get(node.op_type)
    kinds = {types[name] for name in names}
    if rule is not None:
        rule(emit, types)
    elif not kinds <= {*RANGES, TensorProto.UINT64} or not unsigned_words.lower(emit, types):
        raise _refusal(node, kinds)
    return emit.nodes


def _refusal(node: NodeProto, kinds: set[int]) -> UnsupportedModelError:
    names = ", ".join(sorted(TensorProto.DataType.Name(kind).lower() for kind in kinds))
    return UnsupportedModelError(
        f"{describe_node(node)} computes in {names}, which IREE 3.13 lacks for this operator; cast around it"
    )


def _cast(emit: Emitter, types: Mapping[str, int]) -> None:
    node, settings = emit.node, attributes(emit.node)
    target = types[node.output[0]] if node.op_type == "CastLike" else settings["to"]
    value, source = node.input[0], types[node.input[0]]
    if source in CARRIERS and target == source:
        emit("Identity", value, output=node.output[0])
    elif target in SMALL_FLOATS:
        if target == TensorProto.FLOAT8E8M0:
            check_rounding(emit, settings.get("round_mode", "up"))
        codes = encode(emit, _plain(emit, value, source), target, saturate=bool(settings.get("saturate", 1)))
        emit("Identity", codes, output=node.output[0])
    elif target in _BITS:
        # Of large integers float32 loses the lowest bits, which are what is kept here.
        number = _plain(emit, value, source) if source in _FRACTIONS else value
        emit("Cast", _cut(emit, number, target), output=node.output[0], to=CARRIERS[target].stored)
    elif target in CARRIERS:
        _to_word(emit, value, source, target)
    elif source in SMALL_FLOATS:
        emit("Cast", decode(emit, value, source), output=node.output[0], to=target)
    elif source == TensorProto.UINT64:
        unsigned_words.from_long(emit, value, target, node.output[0])
    else:
        emit("Cast", value, output=node.output[0], to=target)


def _plain(emit: Emitter, value: str, source: int) -> str:
    """A value in float32, which holds all that is to be rounded to fewer bits."""
    if source in SMALL_FLOATS:
        return decode(emit, value, source)
    if source == TensorProto.DOUBLE:
        raise _refusal(emit.node, {source})
    if source == TensorProto.UINT64:
        plain = emit.editor.fresh(f"{emit.node.output[0]}/plain")
        unsigned_words.from_long(emit, value, TensorProto.FLOAT, plain)
        return plain
    return value if source == TensorProto.FLOAT else emit("Cast", value, part="plain", to=TensorProto.FLOAT)


def _cut(emit: Emitter, value: str, element: int) -> str:
    """The lowest bits of a value as an int32."""
    count = emit.constant(2 ** _BITS[element], "range", np.int32)
    low = emit("Mod", emit("Cast", value, part="whole", to=TensorProto.INT32), count, part="cut")
    if element not in _SIGNED:
        return low
    is_negative = emit("GreaterOrEqual", low, emit.constant(2 ** (_BITS[element] - 1), "half", np.int32), part="high")
    return emit("Where", is_negative, emit("Sub", low, count, part="below"), low, part="extend")


def _to_word(emit: Emitter, value: str, source: int, target: int) -> None:
    output = emit.node.output[0]
    if source in SMALL_FLOATS:
        value, source = decode(emit, value, source), TensorProto.FLOAT
    if target == TensorProto.UINT64:
        unsigned_words.to_long(emit, value, source, output)
        return
    wide = emit("Cast", value, part="wide", to=CARRIERS[target].computed)
    unsigned_words.wrapped(emit, wide, target, output)


def _bit_cast(emit: Emitter, types: Mapping[str, int]) -> None:
    source, target = types[emit.node.input[0]], types[emit.node.output[0]]
    words = (*RANGES, TensorProto.UINT64)
    if source in words and target == CARRIERS[source].stored:
        emit("Cast", emit.node.input[0], output=emit.node.output[0], to=target)
    elif target in words and source == CARRIERS[target].stored:
        emit("Identity", _loaded(emit, emit.node.input[0], target), output=emit.node.output[0])
    else:
        raise _refusal(emit.node, {source, target} & CARRIERS.keys())


_RULES: Mapping[str, Callable[[Emitter, Mapping[str, int]], None]] = {
    "BitCast": _bit_cast,
    "Cast": _cast,
    "CastLike": _cast,
}


def _convert_constants(graph: GraphProto, types: Mapping[str, int]) -> None:
    editor = GraphEditor(graph)
    for tensor in list(graph.initializer):
        if types.get(tensor.name) in CARRIERS:
            array = editor.constant(tensor.name)
            if array is not None:
                tensor.CopyFrom(_tensor(tensor.name, array, types[tensor.name]))


def _tensor(name: str, array: Array, element: int) -> TensorProto:
    computed = helper.tensor_dtype_to_np_dtype(CARRIERS[element].computed)
    values = array.view(np.uint8) if element in SMALL_FLOATS else array.astype(computed)
    return helper.make_tensor(name, CARRIERS[element].computed, array.shape, values.tobytes(), raw=True)


def _convert_outputs(model: ModelProto, types: Mapping[str, int]) -> None:
    renamed: dict[str, str] = {}
    editor = GraphEditor(model.graph)
    inputs = {value.name for value in model.graph.input}
    for value in model.graph.output:
        if types.get(value.name) not in CARRIERS:
            continue
        value.type.tensor_type.elem_type = CARRIERS[types[value.name]].stored
        # An input is returned as it was passed in.
        if value.name not in inputs:
            renamed[value.name] = editor.fresh(f"{value.name}/computed")
    if not renamed:
        return
    rename_reads(model.graph, renamed)
    nodes = editor.nodes
    for node in nodes:
        node.output[:] = [renamed.get(name, name) for name in node.output]
    for tensor in model.graph.initializer:
        tensor.name = renamed.get(tensor.name, tensor.name)
    for output, computed in renamed.items():
        name = editor.fresh_node(f"{output}/store")
        nodes.append(helper.make_node("Cast", [computed], [output], name=name, to=CARRIERS[types[output]].stored))
    editor.set_nodes(nodes)


def _convert_inputs(model: ModelProto, types: Mapping[str, int]) -> None:
    editor = GraphEditor(model.graph)
    loading: list[NodeProto] = []
    renamed: dict[str, str] = {}
    for value in model.graph.input:
        element = types.get(value.name, 0)
        if element not in CARRIERS:
            continue
        value.type.tensor_type.elem_type = CARRIERS[element].stored
        name = editor.fresh_node(f"{value.name}/load")
        emit = Emitter(editor, helper.make_node("Identity", [value.name], [f"{value.name}/loaded"], name=name))
        renamed[value.name] = _loaded(emit, value.name, element)
        loading.extend(emit.nodes)
    editor.redirect({name: other for name, other in renamed.items() if name != other})
    editor.set_nodes([*loading, *editor.nodes])


def _loaded(emit: Emitter, value: str, element: int) -> str:
    """What is passed in, as it is computed with: callers may leave the upper bits of a byte as they are."""
    if element in RANGES:
        wide = emit("Cast", value, part="wide", to=CARRIERS[element].computed)
        return unsigned_words.wrapped(emit, wide, element)
    if element in _BITS:
        return emit("Cast", _cut(emit, value, element), part="narrow", to=CARRIERS[element].stored)
    return value
