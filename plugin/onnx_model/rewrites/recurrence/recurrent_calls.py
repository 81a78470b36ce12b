"""Recurrent operators as products of their inputs and nodes that stand for loops over the steps.

These nodes are of a domain of their own, which IREE's importer does not know: ``codegen/subgraphs/expanded_calls.py``
replaces them before and after it lowers the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, optional_input
from sartor.onnx_model.operator_types.alike import GATES
from sartor.onnx_model.rewrites.recurrence.kept import activations, is_kept

DOMAIN, OPERATOR = "sartor", "RecurrentLoop"
"""Domain and name of the nodes that stand for loops."""
_WEIGHT, _RECURRENCE, _BIAS, _STATES = 1, 2, 3, (5, 6)


def with_recurrent_calls(model: ModelProto) -> ModelProto:
    """A copy in which recurrent nodes that are kept are products, and nodes that stand for loops."""
    editor = GraphEditor(model.graph)
    if not any(is_kept(node, editor) for node in editor.nodes):
        return model
    copy = ModelProto()
    copy.CopyFrom(model)
    editor, types = GraphEditor(copy.graph), list[tuple[str, tuple[int, ...]]]()

    def replaced(node: NodeProto) -> Sequence[NodeProto] | None:
        if not is_kept(node, editor):
            return None
        calls = _Calls(Emitter(editor, node))
        calls.write()
        types.extend(calls.types)
        return calls.emit.nodes

    editor.rewrite(replaced)
    copy.graph.value_info.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in types)
    copy.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return copy


@dataclass(frozen=True)
class _Direction:
    """What a node that stands for a loop has as attributes."""

    cell: str
    is_reversed: bool
    activations: tuple[str, ...]
    keeps_memory: bool

    @property
    def attributes(self) -> dict[str, str]:
        order, last = "reverse" if self.is_reversed else "forward", "memory" if self.keeps_memory else "states"
        return {"cell": self.cell, "order": order, "activations": "-".join(self.activations), "last": last}


@dataclass(frozen=True)
class _Weights:
    """A direction's weights: [gates * hidden, inputs], [gates * hidden, hidden], [gates * hidden] twice."""

    inputs: Array
    recurrence: Array
    input_bias: Array
    state_bias: Array


class _Calls:
    """Emits the nodes that replace one recurrent node."""

    def __init__(self, emit: Emitter) -> None:
        self.emit = emit
        self.types: list[tuple[str, tuple[int, ...]]] = []
        node, editor = emit.node, emit.editor
        self._found = attributes(node)
        self._steps, self._batch, _ = editor.shape(node.input[0]) or (0, 0, 0)
        matrices = editor.constant(node.input[_RECURRENCE])
        assert matrices is not None
        self._directions, _, self._hidden = matrices.shape
        self._outputs = [*node.output, "", "", ""][:3]

    def write(self) -> None:
        """Emit the nodes: Y is [steps, directions, batch, hidden], the last states are [directions, batch, hidden]."""
        loops = [self._loop(index) for index in range(self._directions)]
        results = [self._call(loop, index) for index, loop in enumerate(loops)]
        if self._outputs[0]:
            rows = [self._rows(result, 0, self._steps) for result in results]
            self._joined(rows, 1, self._outputs[0])
        if self._outputs[1]:
            last = [0 if loop.is_reversed else self._steps - 1 for loop in loops]
            self._concat([self._rows(*span) for span in zip(results, last, [1] * len(last), strict=True)], 0, 1)
        if self._outputs[2]:
            self._concat([self._rows(result, self._steps, 1) for result in results], 0, 2)

    def _loop(self, index: int) -> _Direction:
        node, direction = self.emit.node, self._found.get("direction", "forward")
        names = activations(node)
        count = len(names) // self._directions
        cell = node.op_type.lower()
        if cell == "gru" and self._found.get("linear_before_reset"):
            cell = "gru_linear"
        is_reversed = direction == "reverse" or index == 1
        mine = names[index * count : (index + 1) * count]
        return _Direction(cell, is_reversed, mine, bool(self._outputs[2]))

    def _call(self, loop: _Direction, index: int) -> str:
        """Emit a direction: the product of inputs and weights for all steps, and the call that stands for the loop."""
        emit, weights, hidden = self.emit, self._weights(index), self._hidden
        bias = weights.input_bias + weights.state_bias
        operands = [weights.recurrence.T]
        if loop.cell == "gru":
            operands = [weights.recurrence[: 2 * hidden].T, weights.recurrence[2 * hidden :].T]
        if loop.cell == "gru_linear":
            bias[2 * hidden :] = weights.input_bias[2 * hidden :]
            operands.append(weights.state_bias[2 * hidden :])
        matrix = emit.constant(np.ascontiguousarray(weights.inputs.T), "inputs")
        product = emit("MatMul", emit.node.input[0], matrix, part="inputs")
        product = emit("Add", product, emit.constant(bias, "bias"), part="bias")
        names = [emit.constant(np.ascontiguousarray(operand), "recurrence") for operand in operands]
        states = [self._state(state, index) for state in _STATES[: 2 if loop.cell == "lstm" else 1]]
        part = "" if index == 0 else "reverse"
        result = emit(OPERATOR, product, *names, *states, part=part, domain=DOMAIN, **loop.attributes)
        rows = self._steps + loop.keeps_memory
        self.types.append((result, (rows, self._batch, hidden)))
        return result

    def _weights(self, index: int) -> _Weights:
        editor, node = self.emit.editor, self.emit.node
        inputs, recurrence = (editor.constant(node.input[place]) for place in (_WEIGHT, _RECURRENCE))
        assert inputs is not None
        assert recurrence is not None
        width = GATES[node.op_type] * self._hidden
        bias = editor.constant(optional_input(node, _BIAS)) if optional_input(node, _BIAS) else None
        both = np.zeros(2 * width, inputs.dtype) if bias is None else bias[index]
        return _Weights(inputs[index], recurrence[index], both[:width], both[width:])

    def _state(self, operand: int, index: int) -> str:
        """A direction's initial state, [batch, hidden]."""
        emit, name = self.emit, optional_input(self.emit.node, operand)
        if not name:
            return emit.constant(np.zeros((self._batch, self._hidden), np.float32), "zero_state")
        return emit("Gather", name, emit.constant(np.asarray(index), "direction"), part="initial", axis=0)

    def _rows(self, value: str, begin: int, count: int) -> str:
        """Some rows of a loop's result, [count, batch, hidden]; all of them need no node."""
        if count == self._steps + bool(self._outputs[2]):
            return value
        bounds = [self.emit.constant([bound], "bound") for bound in (begin, begin + count, 0)]
        return self.emit("Slice", value, *bounds, part="rows")

    def _joined(self, values: Sequence[str], axis: int, output: str) -> None:
        raised = [self.emit("Unsqueeze", value, self.emit.constant([axis], "axis"), part="raise") for value in values]
        self.emit("Concat", *raised, part="join", output=output, axis=axis)

    def _concat(self, values: Sequence[str], axis: int, output: int) -> None:
        self.emit("Concat", *values, part="last", output=self._outputs[output], axis=axis)
