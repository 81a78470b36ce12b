"""Writes out loops that run a known, small number of times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import (
    Array,
    GraphEditor,
    attributes,
    editors,
    opset,
    optional_input,
    static_shape,
)
from sartor.onnx_model.graphs.names import SUPPRESSION_BODY
from sartor.onnx_model.graphs.tensor_data import to_array
from sartor.onnx_model.graphs.walk import nodes, subgraphs
from sartor.onnx_model.rewrites.control_flow.inline_if import renamed_node
from sartor.onnx_model.rewrites.control_flow.known_loops import may_stay
from sartor.onnx_model.rewrites.control_flow.trip_counts import counted_steps, goes_on

# Nodes that a loop may become; more would make compilation slow.
_MAX_NODES = 4096
# IREE fuses what only moves and adds elements, over all steps, in minutes; written out, products get kernels.
_MAX_PLAIN_NODES = 512
# Parts of the names of operators that multiply matrices, also of integers or of weights in blocks.
_PRODUCTS = ("Attention", "Conv", "Einsum", "GRU", "Gemm", "LSTM", "MatMul", "RNN")

# Parts of the names of operators that read or write at places that their second operand may tell.
_PLACED = ("Attention", "Embed", "Gather", "Scatter")
# Types of places in tables.
_PLACES = frozenset({TensorProto.INT32, TensorProto.INT64})


def unroll_loops(model: ModelProto) -> tuple[str, ...]:
    """Write out every ``Loop`` and ``Scan`` whose number of steps is known and does not change.

    Those within bodies are left while there are some of the main graph, which may copy or drop the bodies. The nodes of
    the body keep their names; its values are renamed to ``<loop>/<value>``.
    """
    editor, version, changed = GraphEditor(model.graph), opset(model), list[str]()
    changed.extend(editor.rewrite(lambda node: _unrolled(node, editor, version)))
    if not changed and any(True for node in model.graph.node if node.attribute for _ in subgraphs(node)):
        for inner in editors(model.graph):
            if inner.is_nested:
                changed.extend(inner.rewrite(partial(_unrolled, editor=inner, version=version)))
    return tuple(changed)


def _unrolled(node: NodeProto, editor: GraphEditor, version: int) -> list[NodeProto] | None:
    if node.domain:
        return None
    if node.op_type == "Loop":
        return _loop(node, editor, version)
    if node.op_type == "Scan":
        return _scan(node, editor, version)
    return None


@dataclass(frozen=True)
class Body:
    """A loop's body, and where its copies go."""

    graph: GraphProto
    emit: Emitter

    @cached_property
    def _constants(self) -> dict[str, str]:
        """Names of what is the same in each step, which all copies share: weights may be large."""
        editor, prefix = self.emit.editor, self.emit.node.name
        constants: dict[str, str] = {}
        for tensor in self.graph.initializer:
            constants[tensor.name] = editor.fresh(f"{prefix}/{tensor.name}")
            editor.set_constant(constants[tensor.name], to_array(tensor))
        for inner in self.graph.node:
            if _is_constant(inner):
                constants[inner.output[0]] = editor.fresh(f"{prefix}/{inner.output[0]}")
                self.emit.nodes.append(renamed_node(inner, constants))
        return constants

    def is_small(self, steps: int, *, may_stay: bool = False) -> bool:
        """Whether so many copies are few nodes, or fewer if nothing in them is worth it and the loop may stay one."""
        operators = [inner.op_type for inner in nodes(self.graph)]
        is_plain = may_stay and not any(part in operator for operator in operators for part in _PRODUCTS)
        return steps * len(operators) <= (min(_MAX_NODES, _MAX_PLAIN_NODES) if is_plain else _MAX_NODES)

    @cached_property
    def _may_leave_tables(self) -> bool:
        """Whether it reads or writes at places that are no constants."""
        known = {tensor.name for tensor in self.graph.initializer}
        known.update(inner.output[0] for inner in self.graph.node if _is_constant(inner))
        told = [optional_input(inner, 1) for inner in nodes(self.graph) if any(at in inner.op_type for at in _PLACED)]
        return any(name not in known and not self.emit.editor.is_constant(name) for name in told)

    def in_tables(self, live: str, number: str, carried: list[str]) -> list[str]:
        """A step's number and states as a step reads them that is taken if ``live``.

        What others compute is dropped. Numbers that may be places in a table are those of the first step there, as
        others may be beyond its end.
        """
        emit = self.emit
        if not live or not self._may_leave_tables:
            return [number, *carried]
        shape = [1] * len(static_shape(self.graph.input[0].type) or ())
        zero = emit.constant(np.zeros(shape, np.int64), "first_number")
        states = zip(carried, emit.node.input[2:], self.graph.input[2:], strict=True)
        return [
            emit("Where", live, number, zero, part="number_in_table"),
            *(
                emit("Where", live, name, first, part="in_table")
                if name != first and (emit.editor.element_type(first) or value.type.tensor_type.elem_type) in _PLACES
                else name
                for name, first, value in states
            ),
        ]

    def step(self, operands: list[str]) -> list[str]:
        """One copy, on these values; returns the names of its results."""
        editor, prefix = self.emit.editor, self.emit.node.name
        names = {value.name: name for value, name in zip(self.graph.input, operands, strict=True)} | self._constants
        changing = [inner for inner in self.graph.node if not _is_constant(inner)]
        local = [output for inner in changing for output in inner.output if output]
        names |= {name: editor.fresh(f"{prefix}/{name}") for name in local}
        self.emit.nodes.extend(renamed_node(inner, names) for inner in changing)
        return [names.get(value.name, value.name) for value in self.graph.output]


def _is_constant(inner: NodeProto) -> bool:
    return inner.op_type == "Constant" and not inner.domain


def _loop(node: NodeProto, editor: GraphEditor, version: int) -> list[NodeProto] | None:
    body = Body(attributes(node)["body"], Emitter(editor, node))
    # A selection of boxes has many steps and may run on: IREE's loop computes it.
    if body.graph.name == SUPPRESSION_BODY:
        return None
    first = editor.constant(optional_input(node, 1))
    may_not_begin = bool(optional_input(node, 1)) and first is None
    known = _steps(node, body.graph, editor, version)
    if known is None:
        return None
    is_told = not known.may_end and not goes_on(body.graph, editor)
    if not body.is_small(known.count, may_stay=may_stay(node, editor, known.count if is_told else None)):
        return _with_count(node, known.count, body.emit) if is_told else None
    steps = known.count if first is None or bool(first.item()) else 0
    if not steps and not _collects_nothing(body.graph, node, editor):
        return None
    is_flagged = may_not_begin or (known.may_end and steps > 1)
    if is_flagged and not _keeps_shapes(node, body.graph, editor):
        return None
    # How many rows there are is known in the main graph alone.
    if is_flagged and editor.is_nested and len(node.output) > len(node.input) - 2:
        return None
    live = body.emit("Reshape", node.input[1], body.emit.constant([], "scalar"), part="begun") if may_not_begin else ""
    carried, collected, flags = _run(body, node, steps, live, may_end=known.may_end)
    _write(body.emit, carried, [(values, 0) for values in collected], version, flags if is_flagged else [])
    return body.emit.nodes


def _with_count(node: NodeProto, count: int, emit: Emitter) -> list[NodeProto]:
    """A loop that its own counters end as one with their count."""
    loop = NodeProto.FromString(node.SerializeToString())
    body = next(subgraphs(loop))
    loop.input[0] = emit.constant(np.asarray(count, np.int64), "steps")
    going = emit.editor.fresh(f"{node.name}/going")
    body.node.add(op_type="Identity", input=[body.input[1].name], output=[going], name=going)
    body.output[0].name = going
    return [loop]


@dataclass(frozen=True)
class _Steps:
    """How many steps a loop takes: ``count``, or fewer if it ``may_end`` by what it computes."""

    count: int
    may_end: bool


def _steps(node: NodeProto, body: GraphProto, editor: GraphEditor, version: int) -> _Steps | None:
    """The number of a loop's steps; None if it has no bound that is known."""
    trips = editor.constant(optional_input(node, 0)) if optional_input(node, 0) else None
    is_bounded = trips is not None or not optional_input(node, 0)
    most = None if trips is None else max(0, int(trips.item()))
    if goes_on(body, editor):
        return None if most is None else _Steps(most, may_end=False)
    counted = counted_steps(node, body, editor, version, most) if is_bounded else None
    if counted is not None:
        return _Steps(counted, may_end=False)
    return None if most is None else _Steps(most, may_end=True)


def _run(
    body: Body, node: NodeProto, steps: int, live: str, *, may_end: bool
) -> tuple[list[str], list[list[str]], list[str]]:
    """Emit all steps; returns the last states, the collected results of each step, and whether each step is taken.

    A step that is not taken is computed and leaves the states alone.

    Args:
        live: whether the first step is taken; empty if it is.
        may_end: whether the condition that a step computes counts.
    """
    emit, carried = body.emit, list(node.input[2:])
    collected: list[list[str]] = [[] for _ in node.output[len(carried) :]]
    flags = list[str]()
    # ONNX's are scalars; ONNX Runtime passes vectors of one element where the body declares such.
    step_shape, true_shape = ([1] * len(static_shape(value.type) or ()) for value in body.graph.input[:2])
    true, scalar = emit.constant(np.full(true_shape, True), "true"), emit.constant([], "scalar")
    for step in range(steps):
        flags.append(live or emit.constant(np.full((), True), "taken"))
        number, *states = body.in_tables(live, emit.constant(np.full(step_shape, step, np.int64), "step"), carried)
        results = body.step([number, true, *states])
        new, added = results[1 : 1 + len(carried)], results[1 + len(carried) :]
        pairs = zip(new, carried, strict=True)
        carried = [emit("Where", live, value, old, part="if_taken") if live else value for value, old in pairs]
        for values, value in zip(collected, added, strict=True):
            values.append(value)
        if may_end and step < steps - 1:
            going = emit("Reshape", results[0], scalar, part="going")
            live = emit("And", live, going, part="taken") if live else going
    return carried, collected, flags


def _keeps_shapes(node: NodeProto, body: GraphProto, editor: GraphEditor) -> bool:
    """Whether all states have one known shape, so that a step that is not taken can leave them alone."""
    for old, new, result in zip(node.input[2:], node.output, body.output[1:], strict=False):
        before, after = editor.shape(old), editor.shape(new) if new else None
        if before is None or before != (static_shape(result.type) if after is None else after):
            return False
    return True


def _collects_nothing(body: GraphProto, node: NodeProto, editor: GraphEditor) -> bool:
    """Make the results of a loop without steps constants without elements; whether the shapes of all are known."""
    states = len(node.input) - 2
    empty: dict[str, Array] = {}
    for output, value in zip(node.output[states:], body.output[1 + states :], strict=False):
        shape, element = static_shape(value.type), value.type.tensor_type.elem_type
        if output and (shape is None or not element):
            return False
        if output and shape is not None:
            empty[output] = np.zeros((0, *shape), helper.tensor_dtype_to_np_dtype(element))
    for output, array in empty.items():
        editor.set_constant(output, array)
    return True


def _scan(node: NodeProto, editor: GraphEditor, version: int) -> list[NodeProto] | None:
    emit, settings = Emitter(editor, node), attributes(node)
    body, count = Body(settings["body"], emit), settings["num_scan_inputs"]
    states = len(node.input) - count
    carried, sources = list(node.input[:states]), list(node.input[states:])
    shapes = [editor.shape(name) for name in sources]
    # Before opset 9 there was an operand of lengths in front, and a batch dimension.
    if "" in carried or len(body.graph.input) != len(node.input) or any(shape is None for shape in shapes):
        return None
    known = [shape for shape in shapes if shape is not None]
    axes = [axis % len(shape) for axis, shape in zip(settings.get("scan_input_axes", [0] * count), known, strict=True)]
    steps = known[0][axes[0]]
    if not steps or not body.is_small(steps, may_stay=may_stay(node, editor)):
        return None
    outputs = len(node.output) - states
    directions = (
        settings.get("scan_input_directions", [0] * count),
        settings.get("scan_output_directions", [0] * outputs),
    )
    collected: list[list[str]] = [[] for _ in range(outputs)]
    for step in range(steps):
        slices = [
            _slice(emit, name, axis, steps - 1 - step if backward else step)
            for name, axis, backward in zip(sources, axes, directions[0], strict=True)
        ]
        results = body.step([*carried, *slices])
        carried = results[:states]
        for values, value in zip(collected, results[states:], strict=True):
            values.append(value)
    ordered = [values[::-1] if back else values for values, back in zip(collected, directions[1], strict=True)]
    _write(emit, carried, list(zip(ordered, settings.get("scan_output_axes", [0] * outputs), strict=True)), version)
    return emit.nodes


def _slice(emit: Emitter, name: str, axis: int, step: int) -> str:
    return emit("Gather", name, emit.constant(np.asarray(step, np.int64), "step"), part="slice", axis=axis)


def _write(
    emit: Emitter,
    carried: list[str],
    collected: list[tuple[list[str], int]],
    version: int,
    flags: Sequence[str] = (),
) -> None:
    """Name the last states and the joined results of all steps as the loop's outputs.

    Args:
        flags: whether each step is taken, if some may not be: only results of steps that are taken are joined.
    """
    node = emit.node
    for value, output in zip(carried, node.output, strict=False):
        if output:
            emit("Identity", value, part="last", output=output)
    for (values, axis), output in zip(collected, node.output[len(carried) :], strict=True):
        if output and values:
            raised = [emit.raised(value, axis, version) for value in values]
            stacked = emit("Concat", *raised, part="stack", output="" if flags else output, axis=axis)
            if flags:
                one = emit.constant([1], "shape")
                taken = emit(
                    "Concat", *(emit("Reshape", flag, one, part="flag") for flag in flags), part="taken", axis=0
                )
                emit("Compress", stacked, taken, part="rows", output=output, axis=axis)
