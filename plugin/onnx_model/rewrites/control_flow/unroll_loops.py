"""Writes out loops that run a known, small number of times."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, helper

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, opset, optional_input, static_shape
from sartor.onnx_model.graphs.tensor_data import to_array
from sartor.onnx_model.graphs.walk import nodes
from sartor.onnx_model.rewrites.control_flow.inline_if import renamed_node

# Nodes that a loop may become; more would make compilation slow.
_MAX_NODES = 4096


def unroll_loops(model: ModelProto) -> tuple[str, ...]:
    """Write out every ``Loop`` and ``Scan`` of the main graph whose number of steps is known and does not change.

    The nodes of the body keep their names; its values are renamed to ``<loop>/<value>``.
    """
    editor, version = GraphEditor(model.graph), opset(model)
    return editor.rewrite(lambda node: _unrolled(node, editor, version))


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
        found: dict[str, str] = {}
        for tensor in self.graph.initializer:
            found[tensor.name] = editor.fresh(f"{prefix}/{tensor.name}")
            editor.set_constant(found[tensor.name], to_array(tensor))
        for inner in self.graph.node:
            if _is_constant(inner):
                found[inner.output[0]] = editor.fresh(f"{prefix}/{inner.output[0]}")
                self.emit.nodes.append(renamed_node(inner, found))
        return found

    def is_small(self, steps: int) -> bool:
        return steps * sum(1 for _ in nodes(self.graph)) <= _MAX_NODES

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
    emit = Emitter(editor, node)
    body = Body(attributes(node)["body"], emit)
    trip, condition = optional_input(node, 0), optional_input(node, 1)
    count, first = editor.constant(trip), editor.constant(condition)
    if count is None or not goes_on(body.graph, editor):
        return None
    steps = max(0, int(count.item())) if first is None or bool(first.item()) else 0
    carried = list(node.input[2:])
    collected: list[list[str]] = [[] for _ in node.output[len(carried) :]]
    may_not_begin = bool(condition) and first is None
    if not body.is_small(steps) or (collected and may_not_begin):
        return None
    if not steps and not _collects_nothing(body.graph, node, editor):
        return None
    if may_not_begin and any(
        editor.shape(old) is None or editor.shape(old) != editor.shape(new)
        for old, new in zip(carried, node.output, strict=False)
        if new
    ):
        return None
    # ONNX's are scalars; ONNX Runtime passes vectors of one element where the body declares such.
    step_shape, true_shape = ([1] * len(static_shape(each.type) or ()) for each in body.graph.input[:2])
    true = emit.constant(np.full(true_shape, True), "true")
    for step in range(steps):
        results = body.step([emit.constant(np.full(step_shape, step, np.int64), "step"), true, *carried])
        carried, added = results[1 : 1 + len(carried)], results[1 + len(carried) :]
        for values, value in zip(collected, added, strict=True):
            values.append(value)
    if may_not_begin:
        begun = emit("Reshape", condition, emit.constant([], "scalar"), part="begun")
        pairs = zip(carried, node.input[2:], strict=True)
        carried = [emit("Where", begun, value, initial, part="if_begun") for value, initial in pairs]
    _write(emit, carried, [(values, 0) for values in collected], version)
    return emit.nodes


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


def begins(node: NodeProto, editor: GraphEditor) -> bool:
    """Whether a loop's condition before the first step is known to be true."""
    name = optional_input(node, 1)
    known, around = editor.constant(name), editor.graph.input
    # Within the body of another loop, that loop's own condition is true.
    is_given = editor.is_nested and len(around) > 1 and around[1].name == name
    return not name or is_given or (known is not None and bool(known.all()))


def goes_on(body: GraphProto, editor: GraphEditor) -> bool:
    """Whether the condition that a body computes is always the one that it was given, or true.

    ``editor`` is that of the graph around it, which may have the body's constants.
    """
    name = body.output[0].name
    producers = {output: inner for inner in body.node for output in inner.output}
    while name in producers and producers[name].op_type == "Identity":
        name = producers[name].input[0]
    constants = {tensor.name: tensor for tensor in body.initializer}
    known = to_array(constants[name]) if name in constants else editor.constant(name)
    return name == body.input[1].name or (known is not None and bool(known.all()))


def _scan(node: NodeProto, editor: GraphEditor, version: int) -> list[NodeProto] | None:
    emit, found = Emitter(editor, node), attributes(node)
    body, count = Body(found["body"], emit), found["num_scan_inputs"]
    states = len(node.input) - count
    carried, sources = list(node.input[:states]), list(node.input[states:])
    shapes = [editor.shape(name) for name in sources]
    # Before opset 9 there was an operand of lengths in front, and a batch dimension.
    if "" in carried or len(body.graph.input) != len(node.input) or any(shape is None for shape in shapes):
        return None
    known = [shape for shape in shapes if shape is not None]
    axes = [axis % len(shape) for axis, shape in zip(found.get("scan_input_axes", [0] * count), known, strict=True)]
    steps = known[0][axes[0]]
    if not steps or not body.is_small(steps):
        return None
    outputs = len(node.output) - states
    directions = found.get("scan_input_directions", [0] * count), found.get("scan_output_directions", [0] * outputs)
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
    _write(emit, carried, list(zip(ordered, found.get("scan_output_axes", [0] * outputs), strict=True)), version)
    return emit.nodes


def _slice(emit: Emitter, name: str, axis: int, step: int) -> str:
    return emit("Gather", name, emit.constant(np.asarray(step, np.int64), "step"), part="slice", axis=axis)


def _write(emit: Emitter, carried: list[str], collected: list[tuple[list[str], int]], version: int) -> None:
    """Name the last states and the joined results of all steps as the loop's outputs."""
    node = emit.node
    for value, output in zip(carried, node.output, strict=False):
        if output:
            emit("Identity", value, part="last", output=output)
    for (values, axis), output in zip(collected, node.output[len(carried) :], strict=True):
        if output and values:
            raised = [emit.raised(value, axis, version) for value in values]
            emit("Concat", *raised, part="stack", output=output, axis=axis)
