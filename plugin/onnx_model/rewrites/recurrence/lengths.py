"""Recurrent nodes over sequences of unequal lengths as nodes over all steps, so that loops with kernels compute them.

ONNX's operators give zeros for the steps behind a sequence's end, and its state at that end; a reversed direction
begins at the end. So a reversed sequence is turned around within its length and runs forwards. What a forward pass
gives for the steps of a sequence does not depend on those behind it, which leaves the last states: the hidden one is
the result of the last step, and the memory of an LSTM is kept by gates that are opened and shut behind the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from onnx import NodeProto, TensorProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, node_rewrite, optional_input
from sartor.onnx_model.rewrites.recurrence.kept import activations, has_lengths, is_kept_at_full_length

_LENGTHS = 4
_INPUTS, _RECURRENCE, _BIAS = 1, 2, 3
_STATES = (5, 6)
# A gate's sum from which Sigmoid is 0 or 1 whatever else is added, as far as that stays below.
_SHUT, _OPEN = -1e4, 1e4
_ENTER, _FORGET = 0, 2


@node_rewrite()
def run_over_all_steps(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Rewrite recurrent nodes with lengths of sequences that loops compute without; returns their names."""
    if not node.input or not is_kept_at_full_length(node, editor):
        return None
    steps, batch, width = editor.shape(node.input[0]) or (0, 0, 0)
    if not has_lengths(node, editor, steps):
        return None
    emit = Emitter(editor, node)
    _Directions(emit, _Lengths.emitted(emit, steps, batch), width).write()
    return emit.nodes


class Steps(NamedTuple):
    """Names of values that tell which steps are those of sequences of unequal lengths.

    Attributes:
        lengths: in 64 bits, [batch].
        live: whether a step is one of its sequence, [steps, batch].
        end: the number of each sequence's last step, [batch].
        turned: for each step the one that takes its place where sequences are turned around within their lengths, those
            behind an end themselves, [steps, batch].
    """

    lengths: str
    live: str
    end: str
    turned: str

    @staticmethod
    def emitted(emit: Emitter, steps: int) -> Steps:
        """For a node that takes lengths."""
        lengths = emit("Cast", emit.node.input[_LENGTHS], part="lengths", to=TensorProto.INT64)
        numbers = emit.constant(np.arange(steps, dtype=np.int64)[:, None], "steps")
        live = emit("Less", numbers, lengths, part="live")
        end = emit("Sub", lengths, emit.constant(np.asarray(1, np.int64), "number"), part="end")
        turned = emit("Where", live, emit("Sub", end, numbers, part="from_end"), numbers, part="turned")
        return Steps(lengths, live, end, turned)


@dataclass(frozen=True)
class _Lengths:
    """Names of values that depend on the lengths alone.

    Attributes:
        steps, batch: sizes of the sequences.
        live: whether a step is one of its sequence, [steps, batch].
        turned: the row, of all steps' [steps * batch], that a step of a turned sequence is, [steps * batch].
        last: the row of each sequence's last step, [batch].
        any: whether a sequence has any step, [batch, 1].
    """

    steps: int
    batch: int
    live: str
    turned: str
    last: str
    any: str

    @staticmethod
    def emitted(emit: Emitter, steps: int, batch: int) -> _Lengths:
        steps_of = Steps.emitted(emit, steps)
        lengths, live, end, turned = steps_of.lengths, steps_of.live, steps_of.end, steps_of.turned
        columns = emit.constant(np.arange(batch, dtype=np.int64), "columns")
        width, zero = (emit.constant(np.asarray(value, np.int64), "number") for value in (batch, 0))
        rows = emit("Add", emit("Mul", turned, width, part="row"), columns, part="rows")
        first = emit("Mul", emit("Max", end, zero, part="at_least_0"), width, part="last_row")
        has_any = emit("Greater", lengths, zero, part="any")
        return _Lengths(
            steps,
            batch,
            live,
            emit("Reshape", rows, emit.constant([steps * batch], "shape"), part="turned_rows"),
            emit("Add", first, columns, part="last"),
            emit("Reshape", has_any, emit.constant([batch, 1], "shape"), part="any_column"),
        )


class _Directions:
    """Emits one forward node for each direction of a node, and joins their results."""

    def __init__(self, emit: Emitter, lengths: _Lengths, width: int) -> None:
        self._emit, self._lengths, self._width = emit, lengths, width
        self._attributes = attributes(emit.node)
        outputs = [*emit.node.output, "", "", ""]
        self._all, self._hidden, self._memory = outputs[:3]
        direction = self._attributes.get("direction", "forward")
        self._reversed = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[direction]

    def write(self) -> None:
        runs = [self._run(number) for number in range(len(self._reversed))]
        results = zip(*runs, strict=True)
        for values, output, axis in zip(results, (self._all, self._hidden, self._memory), (1, 0, 0), strict=True):
            if output:
                self._emit("Concat", *values, part="join", output=output, axis=axis)

    def _run(self, number: int) -> tuple[str, str, str]:
        """One direction: all steps [steps, 1, batch, hidden], and the last states, [1, batch, hidden] each."""
        emit, lengths, hidden = self._emit, self._lengths, int(self._attributes["hidden_size"])
        source = emit.node.input[0]
        if self._reversed[number]:
            source = self._turned(source, [lengths.steps, lengths.batch, self._width])
        results, memory = self._node(number, source)
        rows = self._reshaped(results, [lengths.steps * lengths.batch, hidden])
        state = self._where_any(emit("Gather", rows, lengths.last, part="last_state", axis=0))
        if self._reversed[number]:
            rows = emit("Gather", rows, lengths.turned, part="turn_back", axis=0)
        by_step = self._reshaped(rows, [lengths.steps, 1, lengths.batch, hidden])
        live = self._reshaped(lengths.live, [lengths.steps, 1, lengths.batch, 1])
        live_results = emit("Where", live, by_step, self._zero(), part="live_results")
        if memory:
            memory = self._where_any(self._reshaped(memory, [lengths.batch, hidden]))
        return live_results, state, memory

    def _node(self, number: int, source: str) -> tuple[str, str]:
        """The forward node of a direction; returns all of its results, and the last memory if that is read."""
        emit, node = self._emit, self._emit.node
        weights = emit.editor.constant(node.input[_INPUTS])
        assert weights is not None
        matrix = weights[number]
        if self._memory:
            source, matrix = self._with_shut_gates(source, matrix)
        operands = [source, emit.constant(np.ascontiguousarray(matrix[None]), "inputs")]
        operands += [self._of_direction(index, number) for index in (_RECURRENCE, _BIAS)]
        operands += ["", *(self._of_direction(index, number) for index in _STATES)]
        while not operands[-1]:
            operands.pop()
        names = activations(node)
        count = len(names) // len(self._reversed)
        kept = {key: value for key, value in self._attributes.items() if not key.startswith("activation")}
        kept |= {"direction": "forward", "activations": list(names[number * count : (number + 1) * count])}
        part = "" if number == 0 else "reverse"
        outputs = ("", "", "")[: 3 if self._memory else 1]
        results = emit.many(node.op_type, *operands, part=part, outputs=outputs, **kept)
        return results[0], results[2] if self._memory else ""

    def _with_shut_gates(self, source: str, matrix: np.ndarray) -> tuple[str, np.ndarray]:
        """A further input, 1 behind a sequence's end, that keeps the memory there: nothing enters, all stays."""
        emit, lengths = self._emit, self._lengths
        behind = emit("Cast", emit("Not", lengths.live, part="not_live"), part="behind", to=TensorProto.FLOAT)
        behind = self._reshaped(behind, [lengths.steps, lengths.batch, 1])
        # What pads a sequence may be anything, and is not read.
        live = self._reshaped(lengths.live, [lengths.steps, lengths.batch, 1])
        source = emit("Where", live, source, self._zero(), part="live_inputs")
        hidden = int(self._attributes["hidden_size"])
        column = np.zeros((matrix.shape[0], 1), matrix.dtype)
        column[_ENTER * hidden : (_ENTER + 1) * hidden] = _SHUT
        column[_FORGET * hidden : (_FORGET + 1) * hidden] = _OPEN
        wider = emit("Concat", source, behind, part="with_end", axis=2)
        return wider, np.concatenate([matrix, column], axis=1)

    def _of_direction(self, index: int, number: int) -> str:
        """An operand of the node for one direction, whose axis stays; empty if it has none."""
        name = optional_input(self._emit.node, index)
        if not name or len(self._reversed) == 1:
            return name
        values = self._emit.editor.constant(name)
        if values is not None:
            return self._emit.constant(np.ascontiguousarray(values[number : number + 1]), "direction")
        return self._emit("Gather", name, self._emit.constant([number], "direction"), part="state", axis=0)

    def _turned(self, value: str, shape: list[int]) -> str:
        """Steps of each sequence in the opposite order; those behind its end stay where they are."""
        rows = self._reshaped(value, [shape[0] * shape[1], shape[2]])
        turned = self._emit("Gather", rows, self._lengths.turned, part="turn", axis=0)
        return self._reshaped(turned, shape)

    def _where_any(self, state: str) -> str:
        """A last state, [1, batch, hidden], 0 for sequences of no step as in ONNX Runtime."""
        held = self._emit("Where", self._lengths.any, state, self._zero(), part="any_state")
        return self._emit("Unsqueeze", held, self._emit.constant([0], "axis"), part="raise")

    def _reshaped(self, value: str, shape: list[int]) -> str:
        return self._emit("Reshape", value, self._emit.constant(shape, "shape"), part="shaped")

    def _zero(self) -> str:
        return self._emit.constant(np.zeros((), np.float32), "zero")
