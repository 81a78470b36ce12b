"""Loops of many steps stay loops: each step reads its row of what is scanned, and writes its row of what is collected.

IREE's importer knows ``Loop`` with states alone. Each result that a step adds becomes a state of all steps' rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from sartor.codegen.ir.loop_rows import PUT, PUT_BACK, TAKE, TAKE_BACK
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, optional_input, rename_reads, static_shape
from sartor.onnx_model.graphs.names import SUPPRESSION_BODY
from sartor.onnx_model.graphs.walk import subgraphs
from sartor.onnx_model.rewrites.control_flow.inline_if import renamed_node
from sartor.onnx_model.rewrites.control_flow.unroll_loops import begins, goes_on

# Every step compares the number of each row with its own: a million rows of one element take as long as the rest.
_MOST_STEPS = 1 << 20
# Axes, shapes and positions, which the importer wants to know, and looks for within a body alone.
_INLINE_ELEMENTS = 16
_POSITIONS = (TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL)

# ONNX Runtime selects among few types of elements; of others all values are values of these.
_CARRIED: Mapping[int, int] = {
    TensorProto.BOOL: TensorProto.INT32,
    TensorProto.INT8: TensorProto.INT32,
    TensorProto.UINT8: TensorProto.INT32,
    TensorProto.INT16: TensorProto.INT32,
    TensorProto.UINT16: TensorProto.INT32,
    TensorProto.UINT32: TensorProto.INT64,
    TensorProto.FLOAT16: TensorProto.FLOAT,
    TensorProto.BFLOAT16: TensorProto.FLOAT,
}


def keep_loops(model: ModelProto) -> tuple[str, ...]:
    """Make ``Scan``, and ``Loop`` with collected results, of the main graph loops of states alone; returns their names.

    What is too short to stay a loop has been written out before. All shapes have to be known.
    """
    editor = GraphEditor(model.graph)
    return editor.rewrite(lambda node: _kept(node, editor))


def constants_in_loops(model: ModelProto) -> tuple[str, ...]:
    """Copy small constants into the bodies of loops that read them, in place; returns the loops' names."""
    editor, changed = GraphEditor(model.graph), list[str]()
    for node in model.graph.node:
        if node.op_type == "Loop" and not node.domain:
            for body in subgraphs(node):
                if _copied(body, editor):
                    changed.append(node.name)
    return tuple(changed)


def _copied(body: GraphProto, editor: GraphEditor) -> bool:
    read = dict.fromkeys(name for node in body.node for name in node.input if name)
    small = [
        name
        for name in read
        if (tensor := editor.tensor(name)) is not None
        and tensor.data_type in _POSITIONS
        and int(np.prod(tensor.dims)) <= _INLINE_ELEMENTS
    ]
    renamed = {name: editor.fresh(f"{name}/inside") for name in small}
    copies = []
    for name, inner in renamed.items():
        values = editor.constant(name)
        assert values is not None
        value = numpy_helper.from_array(values, inner)
        copies.append(helper.make_node("Constant", [], [inner], name=editor.fresh_node(inner), value=value))
    rename_reads(body, renamed)
    nodes = [*copies, *(NodeProto.FromString(node.SerializeToString()) for node in body.node)]
    del body.node[:]
    body.node.extend(nodes)
    return bool(small)


def _kept(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    if node.domain or node.op_type not in ("Loop", "Scan"):
        return None
    loop = _scan(node, editor) if node.op_type == "Scan" else _loop(node, editor)
    return _Writer(loop, Emitter(editor, node)).written() if loop is not None and loop.steps <= _MOST_STEPS else None


@dataclass(frozen=True)
class _Row:
    """A tensor of all steps' rows: its axis of steps, and whether the first step has the last row."""

    name: str
    axis: int
    backward: bool


@dataclass(frozen=True)
class _Known:
    """A loop of a known number of steps, whose states keep their shapes.

    Attributes:
        body: its inputs are the number and the condition of a step if ``is_numbered``, the states, then rows that it
            reads; its outputs the condition if ``is_numbered``, the states, then rows that it adds.
        states: names of the first ones.
        last: names of the last ones, empty where they are not read.
        read, added: the rows.
    """

    body: GraphProto
    steps: int
    is_numbered: bool
    states: Sequence[str]
    last: Sequence[str]
    read: Sequence[_Row]
    added: Sequence[_Row]


def _loop(node: NodeProto, editor: GraphEditor) -> _Known | None:
    body: GraphProto = attributes(node)["body"]
    trips = editor.constant(optional_input(node, 0)) if optional_input(node, 0) else None
    states = list(node.input[2:])
    added = list(node.output[len(states) :])
    if trips is None or not added or body.name == SUPPRESSION_BODY:
        return None
    if not begins(node, editor) or not goes_on(body, editor):
        return None
    rows = [_Row(name, 0, backward=False) for name in added]
    return _Known(body, int(trips.item()), True, states, node.output[: len(states)], [], rows)


def _scan(node: NodeProto, editor: GraphEditor) -> _Known | None:
    options = attributes(node)
    body, count = options["body"], options["num_scan_inputs"]
    states = len(node.input) - count
    sources, added = node.input[states:], node.output[states:]
    # Before opset 9 there was an operand of lengths in front, and a batch dimension.
    if not all(node.input) or len(body.input) != len(node.input):
        return None
    shapes = [editor.shape(name) for name in sources]
    if not sources or any(shape is None for shape in shapes):
        return None
    read = _rows(sources, options, "input", [len(shape or ()) for shape in shapes])
    ranks = [len(static_shape(value.type) or ()) + 1 for value in body.output[states:]]
    steps = (shapes[0] or ())[read[0].axis]
    return _Known(
        body,
        steps,
        False,
        node.input[:states],
        node.output[:states],
        read,
        _rows(added, options, "output", ranks),
    )


def _rows(names: Sequence[str], options: dict[str, list[int]], kind: str, ranks: Sequence[int]) -> list[_Row]:
    axes = options.get(f"scan_{kind}_axes", [0] * len(names))
    directions = options.get(f"scan_{kind}_directions", [0] * len(names))
    found = zip(names, axes, directions, ranks, strict=True)
    return [_Row(name, axis % rank, bool(backward)) for name, axis, backward, rank in found]


class _Writer:
    """Writes a loop of states alone."""

    def __init__(self, loop: _Known, emit: Emitter) -> None:
        self._loop, self._emit, self._editor = loop, emit, emit.editor
        self._inner = Emitter(emit.editor, emit.node)

    def written(self) -> list[NodeProto] | None:
        """The nodes that replace it; None if a shape is not known, or there is no step."""
        loop, emit = self._loop, self._emit
        first = 1 if loop.is_numbered else 0
        kinds = [self._kind(value, name) for value, name in zip(loop.body.output[first:], self._results(), strict=True)]
        known = [kind for kind in kinds if kind is not None]
        if not loop.steps or len(known) < len(kinds):
            return None
        states, rows = known[: len(loop.states)], known[len(loop.states) :]
        if any(self._editor.shape(name) != shape for name, (_, shape) in zip(loop.states, states, strict=True)):
            return None
        kept = [(_CARRIED.get(element, element), (loop.steps, *shape)) for element, shape in rows]
        buffers = [self._zeros(*kind) for kind in kept]
        body = self._body([*states, *kept])
        collected = [
            "" if row.axis or element in _CARRIED else row.name
            for row, (element, _) in zip(loop.added, rows, strict=True)
        ]
        results = emit.many(
            "Loop",
            emit.constant(np.asarray(loop.steps, np.int64), "steps"),
            emit.constant(np.asarray(True), "begin"),
            *loop.states,
            *buffers,
            outputs=(*loop.last, *collected),
            body=body,
        )
        for row, result, (element, shape) in zip(loop.added, results[len(loop.last) :], rows, strict=True):
            if element in _CARRIED and row.name:
                result = emit("Cast", result, part="own_type", output="" if row.axis else row.name, to=element)
            if row.axis and row.name:
                order = list(range(1, len(shape) + 1))
                order.insert(row.axis, 0)
                emit("Transpose", result, part="turned", output=row.name, perm=order)
        return emit.nodes

    def _results(self) -> list[str]:
        return [*self._loop.last, *(row.name for row in self._loop.added)]

    def _kind(self, value: ValueInfoProto, result: str) -> tuple[int, tuple[int, ...]] | None:
        """Element type and shape of what a step computes, as its body says or the loop's result has it."""
        element = value.type.tensor_type.elem_type or self._editor.element_type(result)
        shape = static_shape(value.type)
        if shape is None and result and (whole := self._editor.shape(result)) is not None:
            row = next((row for row in self._loop.added if row.name == result), None)
            shape = whole if row is None else (*whole[: row.axis], *whole[row.axis + 1 :])
        return (element, shape) if element and shape is not None else None

    def _zeros(self, element: int, shape: tuple[int, ...]) -> str:
        zero = self._emit.constant(np.zeros((), helper.tensor_dtype_to_np_dtype(element)), "zero")
        return self._emit("Expand", zero, self._emit.constant(list(shape), "shape"), part="rows")

    def _body(self, kinds: Sequence[tuple[int, tuple[int, ...]]]) -> GraphProto:
        """The body that reads and writes rows."""
        loop, inner, editor = self._loop, self._inner, self._editor
        prefix = self._emit.node.name
        number, going = editor.fresh(f"{prefix}/number"), editor.fresh(f"{prefix}/going")
        carried = [editor.fresh(f"{prefix}/carried") for _ in kinds]
        states = len(loop.states)
        rows = [self._read(row, number) for row in loop.read]
        given = [*([number, going] if loop.is_numbered else []), *carried[:states], *rows]
        names = {value.name: name for value, name in zip(loop.body.input, given, strict=True)}
        for tensor in loop.body.initializer:
            names[tensor.name] = editor.fresh(f"{prefix}/{tensor.name}")
            editor.set_constant(names[tensor.name], numpy_helper.to_array(tensor))
        local = [output for node in loop.body.node for output in node.output if output]
        names |= {name: editor.fresh(f"{prefix}/{name}") for name in local}
        inner.nodes.extend(renamed_node(node, names) for node in loop.body.node)
        results = [names.get(value.name, value.name) for value in loop.body.output[1 if loop.is_numbered else 0 :]]
        # A state that is handed on, or known, is the result of a node, as ONNX Runtime wants it.
        last = [inner("Identity", name, part="state") for name in results[:states]]
        pairs = zip(loop.added, results[states:], carried[states:], kinds[states:], strict=True)
        last += [self._added(row, value, buffer, *kind, number) for row, value, buffer, kind in pairs]
        inputs = [_value(number, TensorProto.INT64, ()), _value(going, TensorProto.BOOL, ())]
        inputs += [_value(name, *kind) for name, kind in zip(carried, kinds, strict=True)]
        condition = inner("Identity", going, part="goes_on")
        outputs = [_value(condition, TensorProto.BOOL, ())]
        outputs += [_value(name, *kind) for name, kind in zip(last, kinds, strict=True)]
        return helper.make_graph(inner.nodes, f"{prefix}/body", inputs, outputs)

    def _place(self, row: _Row, number: str) -> str:
        if not row.backward:
            return number
        end = self._inner.constant(np.asarray(self._loop.steps - 1, np.int64), "end")
        return self._inner("Sub", end, number, part="place")

    def _read(self, row: _Row, number: str) -> str:
        source = row.name
        if row.axis:
            order = [axis for axis in range(len(self._editor.shape(source) or ())) if axis != row.axis]
            source = self._emit("Transpose", source, part="by_step", perm=[row.axis, *order])
        part = TAKE_BACK if row.backward else TAKE
        return self._inner("Gather", source, self._place(row, number), part=part, axis=0)

    def _added(self, row: _Row, value: str, buffer: str, kind: int, shape: tuple[int, ...], number: str) -> str:
        """The buffer with a step's row."""
        if kind in _CARRIED.values():
            value = self._inner("Cast", value, part="wide", to=kind)
        every = np.arange(self._loop.steps, dtype=np.int64).reshape(-1, *(1 for _ in shape[1:]))
        here = self._inner("Equal", self._emit.constant(every, "every"), self._place(row, number), part="here")
        return self._inner("Where", here, value, buffer, part=PUT_BACK if row.backward else PUT)


def _value(name: str, element: int, shape: tuple[int, ...]) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, element, shape)
