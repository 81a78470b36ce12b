"""Unrolls LSTM, GRU and RNN that no kernel computes to matrix products and elementwise operators of each step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, node_rewrite, optional_input
from sartor.onnx_model.graphs.walk import describe_node
from sartor.onnx_model.rewrites.recurrence.kept import extras, has_lengths, is_kept, is_plain, is_usual
from sartor.onnx_model.rewrites.recurrence.lengths import Steps
from sartor.onnx_model.rewrites.recurrence.recurrent_cells import CELLS, Cell, Lstm, State
from sartor.onnx_model.rewrites.recurrence.recurrent_weights import (
    ComputedWeights,
    ConstantWeights,
    Matrix,
    QuantisedMatrix,
    Weights,
)

# Each step becomes about fifteen nodes; longer sequences would make compilation slow.
_MAX_STEPS = 256
_MATRICES = (1, 2)
# Where the scales and zero points of matrices of bytes begin.
_SCALES = 8
_REVERSED = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


@dataclass(frozen=True)
class _Sequence:
    """Sizes and options of one recurrent node; ``reversed`` has one entry per direction."""

    steps: int
    batch: int
    hidden: int
    batch_first: bool
    reversed: tuple[bool, ...]


@node_rewrite(*CELLS)
def unroll_recurrent(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Unroll every recurrent node that no loop computes.

    The products of the weights and the inputs do not depend on the state and become one large MatMul; each step adds
    the product with the state (ONNX operator pages of LSTM, GRU and RNN). IREE 3.13 imports only the forward direction,
    as a loop whose body cannot be tuned, and ignores peepholes.

    Raises:
        UnsupportedModelError: there are too many steps, or an activation is unknown.
    """
    shape = editor.shape(node.input[0]) if node.input else None
    if shape is None or is_kept(node, editor):
        return None
    sequence = _sequence(node, editor, shape)
    return None if sequence is None else _steps(node, editor, sequence)


def unrolled_quantised(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """The steps of ONNX Runtime's LSTM by matrices of bytes, [directions, width, gates * hidden].

    Raises:
        UnsupportedModelError: there are too many steps, an activation is unknown, or a matrix is not constant.
    """
    shape, recurrence = editor.shape(node.input[0]), editor.shape(node.input[2])
    if shape is None or recurrence is None:
        return None
    if not 1 <= shape[0] <= _MAX_STEPS:
        raise UnsupportedModelError(
            f"{describe_node(node)} runs over {shape[0]} steps; 1 to {_MAX_STEPS} are supported: bind another length, "
            "or quantise the model without its LSTMs (op_types_to_quantize)"
        )
    reverse = _REVERSED[attributes(node).get("direction", "forward")]
    return _steps(node, editor, _Sequence(shape[0], shape[1], recurrence[1], batch_first=False, reversed=reverse))


def _steps(node: NodeProto, editor: GraphEditor, sequence: _Sequence) -> list[NodeProto]:
    emit = Emitter(editor, node)
    source = node.input[0]
    if sequence.batch_first:
        source = emit("Transpose", source, part="time_first", perm=[1, 0, 2])
    runs = [_run_direction(emit, source, sequence, number) for number in range(len(sequence.reversed))]
    _write_outputs(emit, sequence, runs)
    return emit.nodes


def _sequence(node: NodeProto, editor: GraphEditor, shape: tuple[int, ...]) -> _Sequence | None:
    """The node's sizes and options; None for a long sequence of a plain cell, which is left to IREE as a loop."""
    settings = attributes(node)
    direction = settings.get("direction", "forward")
    batch_first = bool(settings.get("layout", 0))
    steps, batch = (shape[1], shape[0]) if batch_first else (shape[0], shape[1])
    recurrence = editor.shape(node.input[2])
    if recurrence is None:
        raise UnsupportedModelError(f"{describe_node(node)} has weights whose shape is not known")
    if steps > _MAX_STEPS and is_plain(node, editor, steps):
        return None
    if not 1 <= steps <= _MAX_STEPS:
        raise UnsupportedModelError(_misfit(node, editor, steps))
    return _Sequence(steps, batch, recurrence[2], batch_first, _REVERSED[direction])


def _misfit(node: NodeProto, editor: GraphEditor, steps: int) -> str:
    """What a number of steps means for a node that would be unrolled."""
    if not steps:
        return f"{describe_node(node)} runs over no steps; bind a longer sequence"
    named = ", ".join(extras(node, editor, steps)) or "this direction, activation or type of its weights"
    return (
        f"{describe_node(node)} runs over {steps} steps; with {named} up to {_MAX_STEPS} are supported: "
        "bind a shorter sequence"
    )


def _run_direction(emit: Emitter, source: str, sequence: _Sequence, number: int) -> tuple[list[str], State]:
    """Emit one direction; returns names of the hidden states by time step, each [batch, hidden], and the last state."""
    cell = _cell(emit, number, sequence)
    state = _initial_state(emit, sequence, number, cell)
    ends, is_reversed = _Ends.of(emit, sequence), sequence.reversed[number]
    # Ranges that are found for all sequences at once tell in which order ONNX Runtime takes their steps.
    is_ranged = ends is not None and isinstance(cell.recurrence, QuantisedMatrix)
    turned = _Turned.of(emit, sequence) if is_ranged and is_reversed else None
    if ends is not None and is_ranged:
        source = ends.without_padding(source, sequence)
    projected = cell.weight.product(emit, source, slice(None), "weight", f"input{number}" if number else "")
    projected = emit("Add", projected, cell.input_bias(emit), part="bias")
    projected = projected if turned is None else turned.rows(projected)
    order = range(sequence.steps)[::-1] if is_reversed and turned is None else range(sequence.steps)
    hidden = [""] * sequence.steps
    for step in order:
        gates = emit("Gather", projected, emit.constant(np.asarray(step), "step"), part=f"step{step}", axis=0)
        before = ends.ranged(step, state) if ends is not None and is_ranged and step else state
        after = cell.step(emit, gates, before)
        hidden[step], state = (after.hidden, after) if ends is None else ends.applied(step, state, after)
    hidden = hidden if turned is None or not emit.node.output[0] else turned.steps(hidden)
    return hidden, state if ends is None else ends.none_without_steps(state)


@dataclass(frozen=True)
class _Turned:
    """Steps of sequences of unequal lengths in the opposite order; those behind an end stay where they are.

    Attributes:
        emit: of the node.
        taken: for each step of each sequence the one that takes its place, [steps, batch, 1].
    """

    emit: Emitter
    taken: str

    @staticmethod
    def of(emit: Emitter, sequence: _Sequence) -> _Turned:
        taken = Steps.emitted(emit, sequence.steps).turned
        return _Turned(emit, emit("Unsqueeze", taken, emit.constant([2], "axis"), part="taken"))

    def rows(self, value: str) -> str:
        """A value, [steps, batch, width], with its steps turned."""
        wide = self.emit("Expand", self.taken, self.emit("Shape", value, part="shape"), part="wide")
        return self.emit("GatherElements", value, wide, part="turn", axis=0)

    def steps(self, values: list[str]) -> list[str]:
        """Values of all steps, [batch, width], turned back."""
        rows = self.rows(_stack(self.emit, values, 0, ""))
        numbers = [self.emit.constant(np.asarray(step), "step") for step in range(len(values))]
        return [self.emit("Gather", rows, number, part="turned_back", axis=0) for number in numbers]


@dataclass(frozen=True)
class _Ends:
    """Keeps states behind the end of sequences that are shorter than the longest one.

    Attributes:
        emit: of the node.
        lengths: a value, [batch, 1].
    """

    emit: Emitter
    lengths: str

    @staticmethod
    def of(emit: Emitter, sequence: _Sequence) -> _Ends | None:
        if not has_lengths(emit.node, emit.editor, sequence.steps):
            return None
        wide = emit("Cast", emit.node.input[4], part="lengths", to=TensorProto.INT64)
        return _Ends(emit, emit("Reshape", wide, emit.constant([sequence.batch, 1], "shape"), part="ends"))

    def applied(self, step: int, before: State, after: State) -> tuple[str, State]:
        """A step's results, 0 behind an end, and the state after it, which is kept there."""
        emit, live = self.emit, self._is_longer(step)
        names = [(after.hidden, before.hidden), (after.memory, before.memory)]
        kept = [emit("Where", live, new, old, part="kept") if new else "" for new, old in names]
        return emit("Where", live, after.hidden, self._zero(), part="live"), State(*kept)

    def without_padding(self, source: str, sequence: _Sequence) -> str:
        """What sequences read, [steps, batch, width], with zeros behind the longest: no range has what ONNX Runtime
        does not read, and all have zero."""
        longest = self.emit("ReduceMax", self.lengths, part="longest", keepdims=0)
        steps = self.emit.constant(np.arange(sequence.steps, dtype=np.int64).reshape(-1, 1, 1), "steps")
        read = self.emit("Less", steps, longest, part="read")
        return self.emit("Where", read, source, self._zero(), part="unpadded")

    def ranged(self, step: int, state: State) -> State:
        """The state that a later step multiplies: ONNX Runtime takes it from the output of all steps, which is 0 behind
        an end, if that is named."""
        if not self.emit.node.output[0]:
            return state
        hidden = self.emit("Where", self._is_longer(step - 1), state.hidden, self._zero(), part="ranged")
        return State(hidden, state.memory)

    def none_without_steps(self, state: State) -> State:
        """The last state, 0 for sequences of no step as in ONNX Runtime."""
        live = self._is_longer(0)
        names = (state.hidden, state.memory)
        return State(*(self.emit("Where", live, name, self._zero(), part="any") if name else "" for name in names))

    def _is_longer(self, step: int) -> str:
        return self.emit("Greater", self.lengths, self.emit.constant([step], "step"), part="is_longer")

    def _zero(self) -> str:
        return self.emit.like(0.0, self.emit.node.input[0], "zero")


def _cell(emit: Emitter, number: int, sequence: _Sequence) -> Cell:
    node, directions = emit.node, len(sequence.reversed)
    settings: dict[str, Any] = attributes(node)
    cell = CELLS.get(node.op_type, Lstm)
    names = settings.get("activations") or list(cell.default_activations) * directions
    count = len(cell.default_activations)
    if any(
        settings.get(name) and not is_usual(name, settings[name]) for name in ("activation_alpha", "activation_beta")
    ):
        raise UnsupportedModelError(f"{describe_node(node)} sets parameters of its activations, which is not supported")
    dtype = emit.dtype(node.input[0])
    zeros = ConstantWeights(np.zeros(2 * cell.gate_count * sequence.hidden, dtype))
    return cell(
        hidden=sequence.hidden,
        weight=_matrix(emit, 1, number) or zeros,
        recurrence=_matrix(emit, 2, number) or zeros,
        bias=_weights(emit, 3, number) or zeros,
        activations=tuple(names[number * count : (number + 1) * count]),
        peepholes=_weights(emit, 7, number),
        options=settings,
    )


def _matrix(emit: Emitter, index: int, number: int) -> Matrix | None:
    """A matrix of one direction; None if it is left out."""
    if not emit.node.domain:
        return _weights(emit, index, number)
    places = (index, _SCALES + 2 * (index - 1), _SCALES + 2 * (index - 1) + 1)
    values, scale, point = (emit.editor.constant(emit.node.input[place]) for place in places)
    if values is None or scale is None or point is None:
        raise UnsupportedModelError(
            f"{describe_node(emit.node)} has weights of bytes that are not constant; use the float model"
        )
    return QuantisedMatrix(values[number], scale[number], point[number])


def _weights(emit: Emitter, index: int, number: int) -> Weights | None:
    """An operand's weights of one direction; None if it is left out."""
    name = optional_input(emit.node, index)
    if not name:
        return None
    values = emit.editor.constant(name)
    return ComputedWeights(name, number, index in _MATRICES) if values is None else ConstantWeights(values[number])


def _initial_state(emit: Emitter, sequence: _Sequence, number: int, cell: Cell) -> State:
    values = []
    for index in (5, 6)[: cell.state_count]:
        name = optional_input(emit.node, index)
        if not name:
            dtype = emit.dtype(emit.node.input[0])
            values.append(emit.constant(np.zeros((sequence.batch, sequence.hidden), dtype), "zero_state"))
            continue
        axis = 1 if sequence.batch_first else 0
        values.append(emit("Gather", name, emit.constant(np.asarray(number), "direction"), part="initial", axis=axis))
    return State(*values)


def _write_outputs(emit: Emitter, sequence: _Sequence, runs: list[tuple[list[str], State]]) -> None:
    """Y is [steps, directions, batch, hidden], or [batch, steps, directions, hidden] if the batch comes first."""
    outputs = [*emit.node.output, "", "", ""]
    if outputs[0]:
        merged = _stack(
            emit, [_stack(emit, hidden, 0, "") for hidden, _ in runs], 1, "" if sequence.batch_first else outputs[0]
        )
        if sequence.batch_first:
            emit("Transpose", merged, part="batch_first", output=outputs[0], perm=[2, 0, 1, 3])
    axis = 1 if sequence.batch_first else 0
    last = [state for _, state in runs]
    if outputs[1]:
        _stack(emit, [state.hidden for state in last], axis, outputs[1])
    if outputs[2]:
        _stack(emit, [state.memory for state in last], axis, outputs[2])


def _stack(emit: Emitter, values: list[str], axis: int, output: str) -> str:
    raised = [emit("Unsqueeze", value, emit.constant([axis], "axis"), part="raise") for value in values]
    return emit("Concat", *raised, part="stack", output=output, axis=axis)
