"""Loops of many steps stay loops: each step reads its row of what is scanned, and writes its row of what is collected.

IREE's importer knows ``Loop`` with states alone. Each result that a step adds becomes a state of all steps' rows. It
also drops conditions: a loop that may end early, or not begin, runs to its bound, and a further state says whether a
step is taken. A step that is not leaves the states alone, and its rows are not selected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from sartor.codegen.ir.loop_rows import PUT, PUT_BACK, TAKE, TAKE_BACK
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, editors, rename_reads, static_shape
from sartor.onnx_model.graphs.walk import nodes, subgraphs
from sartor.onnx_model.rewrites.control_flow.inline_if import renamed_node
from sartor.onnx_model.rewrites.control_flow.known_loops import (
    KnownLoop,
    Row,
    is_counted,
    known_loop,
    takes_all_or_none,
)

# Every step compares the number of each row with its own: a million rows of one element take as long as the rest.
_MOST_STEPS = 1 << 20
# Axes, shapes and positions, which the importer wants to know, and looks for within a body alone.
_INLINE_ELEMENTS = 16
_POSITIONS = (TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL)

# Types of places in tables.
_PLACES = frozenset({TensorProto.INT32, TensorProto.INT64})
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
    """Make ``Scan``, and ``Loop`` with collected results or an end by data, loops of states alone, in bodies too.

    What is too short to stay a loop has been written out before. All shapes have to be known, and of a number of steps
    that is computed a bound. Returns the names of the loops.
    """
    changed = list[str]()
    for editor in editors(model.graph):
        changed.extend(editor.rewrite(partial(_kept, editor=editor)))
    return tuple(changed)


def constants_in_loops(model: ModelProto) -> tuple[str, ...]:
    """Copy small constants into the bodies of loops that read them, in place; returns the loops' names."""
    editor, changed = GraphEditor(model.graph), list[str]()
    for node in nodes(model.graph):
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
    copied = [*copies, *(NodeProto.FromString(node.SerializeToString()) for node in body.node)]
    del body.node[:]
    body.node.extend(copied)
    return bool(small)


def _kept(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    if takes_all_or_none(node, editor):
        return _counted_from(node, Emitter(editor, node))
    loop = known_loop(node, editor)
    if loop is None or loop.steps > _MOST_STEPS or not is_counted(loop, editor):
        return None
    return _Writer(loop, Emitter(editor, node)).written()


def _counted_from(node: NodeProto, emit: Emitter) -> list[NodeProto]:
    """A loop with a condition that is known to be true; where it was computed and is false, the loop takes no step."""
    trips = node.input[0]
    if node.input[1]:
        begins, count = (emit("Reshape", name, emit.constant([], "scalar"), part="begin") for name in node.input[1::-1])
        trips = emit("Where", begins, count, emit.constant(np.asarray(0, np.int64), "none"), part="trips")
    loop = NodeProto.FromString(node.SerializeToString())
    loop.input[:2] = [trips, emit.constant(np.asarray(True), "begin")]
    return [*emit.nodes, loop]


_Kind = tuple[int, tuple[int, ...]]
_FLAG: _Kind = (TensorProto.BOOL, ())


class _Writer:
    """Writes a loop of states alone."""

    def __init__(self, loop: KnownLoop, emit: Emitter) -> None:
        self._loop, self._emit, self._editor = loop, emit, emit.editor
        self._inner = Emitter(emit.editor, emit.node)

    def written(self) -> list[NodeProto] | None:
        """The nodes that replace it; None if a shape is not known, or there is no step."""
        loop = self._loop
        first = 1 if loop.is_numbered else 0
        kinds = [self._kind(value, name) for value, name in zip(loop.body.output[first:], self._results(), strict=True)]
        known = [kind for kind in kinds if kind is not None]
        if loop.steps <= 0 or len(known) < len(kinds):
            return None
        states, rows = known[: len(loop.states)], known[len(loop.states) :]
        if any(self._editor.shape(name) != shape for name, (_, shape) in zip(loop.states, states, strict=True)):
            return None
        self._loop_of(states, rows)
        return self._emit.nodes

    def _loop_of(self, states: Sequence[_Kind], rows: Sequence[_Kind]) -> None:
        """Emit the loop, whether a step is taken as its last state and row, and what makes its outputs of the rows."""
        loop, emit = self._loop, self._emit
        flags = [_FLAG] if loop.is_bound else []
        added = [*rows, *flags] if rows else []
        kept = [(_CARRIED.get(element, element), (loop.steps, *shape)) for element, shape in added]
        buffers = [self._zeros(*kind) for kind in kept]
        begun = [self._begun()] if loop.is_bound else []
        body = self._body([*states, *flags, *kept])
        made = [self._is_made(row, element) for row, (element, _) in zip(loop.added, rows, strict=True)]
        collected = ["" if is_made else row.name for row, is_made in zip(loop.added, made, strict=True)]
        results = emit.many(
            "Loop",
            emit.constant(np.asarray(loop.steps, np.int64), "steps"),
            emit.constant(np.asarray(True), "begin"),
            *(*loop.states, *begun, *buffers),
            outputs=(*loop.last, *("" for _ in flags), *collected, *("" for _ in added[len(rows) :])),
            body=body,
        )
        written = results[len(loop.last) + len(flags) :]
        taken = emit("Cast", written[-1], part="taken", to=TensorProto.BOOL) if loop.is_bound and rows else ""
        of_rows = written[: len(rows)]
        for row, result, (element, shape), is_made in zip(loop.added, of_rows, rows, made, strict=True):
            if is_made and row.name:
                self._output(row, result, element, len(shape), taken)

    def _is_made(self, row: Row, element: int) -> bool:
        """Whether an output is made of the rows that the loop writes."""
        return bool(row.axis) or element in _CARRIED or self._loop.is_bound

    def _output(self, row: Row, result: str, element: int, rank: int, taken: str) -> None:
        emit = self._emit
        if element in _CARRIED:
            result = emit("Cast", result, part="own_type", output="" if row.axis or taken else row.name, to=element)
        if row.axis:
            order = list(range(1, rank + 1))
            order.insert(row.axis, 0)
            emit("Transpose", result, part="turned", output=row.name, perm=order)
        elif taken:
            emit("Compress", result, taken, part="rows", output=row.name, axis=0)

    def _begun(self) -> str:
        """Whether the first step is taken."""
        loop, emit = self._loop, self._emit
        flags = [emit("Reshape", loop.condition, emit.constant([], "scalar"), part="begun")] if loop.condition else []
        if loop.trips:
            flags.append(self._is_before_the_end(emit, emit.constant(np.asarray(0, np.int64), "first")))
        return _all_of(emit, flags) or emit.constant(np.asarray(True), "begun")

    def _is_before_the_end(self, emit: Emitter, number: str) -> str:
        wide = emit("Cast", self._loop.trips, part="trips", to=TensorProto.INT64)
        return emit("Less", number, emit("Reshape", wide, emit.constant([], "scalar"), part="count"), part="before_end")

    def _results(self) -> list[str]:
        return [*self._loop.last, *(row.name for row in self._loop.added)]

    def _kind(self, value: ValueInfoProto, result: str) -> _Kind | None:
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

    def _body(self, kinds: Sequence[_Kind]) -> GraphProto:
        """The body that reads and writes rows."""
        loop, inner, editor = self._loop, self._inner, self._editor
        prefix = self._emit.node.name
        number, going = editor.fresh(f"{prefix}/number"), editor.fresh(f"{prefix}/going")
        carried = [editor.fresh(f"{prefix}/carried") for _ in kinds]
        states = len(loop.states)
        rows = [self._read(row, number) for row in loop.read]
        read = self._read_in_body(number, carried, kinds)
        given = [*([read[0], going] if loop.is_numbered else []), *read[1:], *rows]
        names = {value.name: name for value, name in zip(loop.body.input, given, strict=True)}
        for tensor in loop.body.initializer:
            names[tensor.name] = editor.fresh(f"{prefix}/{tensor.name}")
            editor.set_constant(names[tensor.name], numpy_helper.to_array(tensor))
        local = [output for node in loop.body.node for output in node.output if output]
        names |= {name: editor.fresh(f"{prefix}/{name}") for name in local}
        inner.nodes.extend(renamed_node(node, names) for node in loop.body.node)
        computed = [names.get(value.name, value.name) for value in loop.body.output]
        results = computed[1:] if loop.is_numbered else computed
        if loop.is_bound:
            taken = carried[states]
            states_of_step = zip(results[:states], carried[:states], strict=True)
            chosen = [inner("Where", taken, new, old, part="if_taken") for new, old in states_of_step]
            going_on = self._goes_on(computed[0], taken, number)
            results = [*chosen, going_on, *results[states:], *([taken] if loop.added else [])]
            states += 1
        # A state that is handed on, or known, is the result of a node, as ONNX Runtime wants it.
        last = [inner("Identity", name, part="state") for name in results[:states]]
        is_told = loop.is_bound and bool(loop.added)
        added = [*loop.added, *([Row("", 0, backward=False)] if is_told else [])]
        put = zip(added, results[states:], carried[states:], kinds[states:], strict=True)
        last += [self._added(row, value, buffer, *kind, number) for row, value, buffer, kind in put]
        inputs = [_value(number, TensorProto.INT64, ()), _value(going, TensorProto.BOOL, ())]
        inputs += [_value(name, *kind) for name, kind in zip(carried, kinds, strict=True)]
        condition = inner("Identity", going, part="goes_on")
        outputs = [_value(condition, TensorProto.BOOL, ())]
        outputs += [_value(name, *kind) for name, kind in zip(last, kinds, strict=True)]
        return helper.make_graph(inner.nodes, f"{prefix}/body", inputs, outputs)

    def _read_in_body(self, number: str, carried: Sequence[str], kinds: Sequence[_Kind]) -> list[str]:
        """The number of a step and its states, as the loop's own nodes read them.

        What a step that is not taken computes is dropped. Numbers that may be places in a table are those of the first
        step there, as others may be beyond its end.
        """
        loop = self._loop
        states = [*carried[: len(loop.states)]]
        if not loop.is_bound:
            return [number, *states]
        taken, inner = carried[len(states)], self._inner
        firsts = zip(states, loop.states, kinds, strict=False)
        read = [
            inner("Where", taken, name, first, part="in_table") if element in _PLACES else name
            for name, first, (element, _) in firsts
        ]
        zero = inner.constant(np.asarray(0, np.int64), "first_number")
        return [inner("Where", taken, number, zero, part="number_in_table") if loop.is_numbered else number, *read]

    def _goes_on(self, condition: str, taken: str, number: str) -> str:
        """Whether the next step is taken."""
        inner = self._inner
        flags = [taken, inner("Reshape", condition, inner.constant([], "scalar"), part="going")]
        if self._loop.trips:
            following = inner("Add", number, inner.constant(np.asarray(1, np.int64), "one"), part="following")
            flags.append(self._is_before_the_end(inner, following))
        return _all_of(inner, flags)

    def _place(self, row: Row, number: str) -> str:
        if not row.backward:
            return number
        end = self._inner.constant(np.asarray(self._loop.steps - 1, np.int64), "end")
        return self._inner("Sub", end, number, part="place")

    def _read(self, row: Row, number: str) -> str:
        source = row.name
        if row.axis:
            order = [axis for axis in range(len(self._editor.shape(source) or ())) if axis != row.axis]
            source = self._emit("Transpose", source, part="by_step", perm=[row.axis, *order])
        part = TAKE_BACK if row.backward else TAKE
        return self._inner("Gather", source, self._place(row, number), part=part, axis=0)

    def _added(self, row: Row, value: str, buffer: str, kind: int, shape: tuple[int, ...], number: str) -> str:
        """The buffer with a step's row."""
        if kind in _CARRIED.values():
            value = self._inner("Cast", value, part="wide", to=kind)
        every = np.arange(self._loop.steps, dtype=np.int64).reshape(-1, *(1 for _ in shape[1:]))
        here = self._inner("Equal", self._emit.constant(every, "every"), self._place(row, number), part="here")
        return self._inner("Where", here, value, buffer, part=PUT_BACK if row.backward else PUT)


def _all_of(emit: Emitter, flags: Sequence[str]) -> str:
    """The conjunction of flags; empty if there are none."""
    joined = ""
    for flag in flags:
        joined = emit("And", joined, flag, part="all") if joined else flag
    return joined


def _value(name: str, element: int, shape: tuple[int, ...]) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, element, shape)
