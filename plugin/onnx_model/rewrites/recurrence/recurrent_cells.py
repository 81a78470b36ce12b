"""Emits one step of each recurrent operator.

The gates are given as ``X @ W^T + bias``. In formulas ``*`` is the elementwise and ``@`` the matrix product.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.walk import describe_node
from sartor.onnx_model.rewrites.recurrence.recurrent_weights import Matrix, Weights

_ACTIVATIONS = {
    "hardsigmoid": "HardSigmoid",
    "relu": "Relu",
    "sigmoid": "Sigmoid",
    "softplus": "Softplus",
    "softsign": "Softsign",
    "tanh": "Tanh",
}


@dataclass(frozen=True)
class State:
    """Value names of the hidden state and, for LSTM, of the memory cell, each [batch, hidden]."""

    hidden: str
    memory: str = ""


@dataclass(frozen=True)
class Cell:
    """Weights of one direction.

    Attributes:
        hidden: width of the state.
        weight, recurrence: [gates * hidden, inputs] and [gates * hidden, hidden].
        bias: the biases of input and state, concatenated, [2 * gates * hidden].
        activations: ONNX names.
        peepholes: [3 * hidden], or None.
        options: the node's attributes.
    """

    hidden: int
    weight: Matrix
    recurrence: Matrix
    bias: Weights
    activations: tuple[str, ...]
    peepholes: Weights | None
    options: Mapping[str, Any]

    default_activations: ClassVar[tuple[str, ...]] = ()
    state_count: ClassVar[int] = 1
    gate_count: ClassVar[int] = 1

    def input_bias(self, emit: Emitter) -> str:
        """Emit the bias that does not depend on the state, [gates * hidden]; it is added to all steps at once."""
        half = self.gate_count * self.hidden
        return self.bias.total(emit, [slice(half)], [slice(half, 2 * half)])

    def step(self, emit: Emitter, gates: str, state: State) -> State:
        """Emit the next state from this step's gates, [batch, gates * hidden]."""
        raise NotImplementedError

    def recurrent_product(self, emit: Emitter, hidden: str, rows: slice = slice(None)) -> str:
        """Emit ``H @ R^T`` for the gates in ``rows`` of the recurrence matrix."""
        return self.recurrence.product(emit, hidden, rows, f"recurrence{rows.start or 0}", "recurrent")

    def activate(self, emit: Emitter, index: int, value: str) -> str:
        """Emit activation ``index``, after clipping if the node has ``clip``.

        Raises:
            UnsupportedModelError: the activation is unknown.
        """
        operator = self.operator(emit, index)
        if limit := self.options.get("clip"):
            bounds = [emit.like(bound, emit.node.input[0], "clip") for bound in (-limit, limit)]
            value = emit("Clip", value, *bounds, part="clip")
        return emit(operator, value, part=operator.lower())

    def operator(self, emit: Emitter, index: int) -> str:
        """ONNX's operator for activation ``index``.

        Raises:
            UnsupportedModelError: the activation is unknown.
        """
        name = self.activations[index]
        if name.lower() not in _ACTIVATIONS:
            raise UnsupportedModelError(
                f"{describe_node(emit.node)} has the activation {name!r}; {', '.join(_ACTIVATIONS.values())} are "
                "supported: replace it, or write the steps out before exporting"
            )
        return _ACTIVATIONS[name.lower()]

    def split(self, emit: Emitter, value: str, parts: int) -> tuple[str, ...]:
        """Split the last dimension into ``parts`` equal pieces."""
        sizes = emit.constant([self.hidden] * parts, "sizes")
        return emit.many("Split", value, sizes, part="gates", outputs=("",) * parts, axis=-1)


class Rnn(Cell):
    """``H = f(X @ W^T + H @ R^T + b)`` (Elman 1990)."""

    default_activations = ("Tanh",)

    def step(self, emit: Emitter, gates: str, state: State) -> State:
        """Emit ``H = f(gates + H @ R^T)``."""
        total = emit("Add", gates, self.recurrent_product(emit, state.hidden), part="add")
        return State(self.activate(emit, 0, total))


class Lstm(Cell):
    """Gates in the order input, output, forget, cell (Hochreiter and Schmidhuber 1997; peepholes: Gers et al. 2002)."""

    default_activations = ("Sigmoid", "Tanh", "Tanh")
    state_count = 2
    gate_count = 4

    def step(self, emit: Emitter, gates: str, state: State) -> State:
        """Emit ``c = f * c + i * g(cell)`` and ``H = o * h(c)``."""
        total = emit("Add", gates, self.recurrent_product(emit, state.hidden), part="add")
        enter, leave, forget, cell = self.split(emit, total, 4)
        enter = self.activate(emit, 0, self._peep(emit, enter, state.memory, 0))
        if self.options.get("input_forget"):
            forget = emit("Sub", emit.like(1.0, emit.node.input[0], "one"), enter, part="forget")
        else:
            forget = self.activate(emit, 0, self._peep(emit, forget, state.memory, 2))
        fresh = emit("Mul", enter, self.activate(emit, 1, cell), part="enter")
        memory = emit("Add", emit("Mul", forget, state.memory, part="keep"), fresh, part="memory")
        leave = self.activate(emit, 0, self._peep(emit, leave, memory, 1))
        unclipped = emit(self.operator(emit, 2), memory, part="bend")
        return State(emit("Mul", leave, unclipped, part="hidden"), memory)

    def _peep(self, emit: Emitter, gate: str, memory: str, index: int) -> str:
        if self.peepholes is None or self.peepholes.are_zero:
            return gate
        rows = slice(index * self.hidden, (index + 1) * self.hidden)
        seen = emit("Mul", memory, self.peepholes.part(emit, rows, f"peephole{index}"), part="peephole")
        return emit("Add", gate, seen, part="add_peephole")


class Gru(Cell):
    """Gates in the order update, reset, hidden (Cho et al. 2014)."""

    default_activations = ("Sigmoid", "Tanh")
    gate_count = 3

    def input_bias(self, emit: Emitter) -> str:
        """Without the hidden gate's recurrent bias if ``linear_before_reset``: the reset gate multiplies it first."""
        if not self.options.get("linear_before_reset"):
            return super().input_bias(emit)
        both, width = 2 * self.hidden, 3 * self.hidden
        return self.bias.total(emit, [slice(both), slice(both, width)], [slice(width, width + both)])

    def step(self, emit: Emitter, gates: str, state: State) -> State:
        """Emit ``H = (1 - z) * h + z * H`` as ``h + z * (H - h)``."""
        both = slice(0, 2 * self.hidden)
        entering = self.split(emit, gates, 3)
        returning = self.recurrent_product(emit, state.hidden, both)
        update, reset = self.split(emit, returning, 2)
        update = self.activate(emit, 0, emit("Add", entering[0], update, part="add_update"))
        reset = self.activate(emit, 0, emit("Add", entering[1], reset, part="add_reset"))
        hidden = self.activate(emit, 1, emit("Add", entering[2], self._recalled(emit, reset, state), part="add_hidden"))
        change = emit("Sub", state.hidden, hidden, part="change")
        return State(emit("Add", hidden, emit("Mul", update, change, part="keep"), part="hidden"))

    def _recalled(self, emit: Emitter, reset: str, state: State) -> str:
        rows = slice(2 * self.hidden, 3 * self.hidden)
        if not self.options.get("linear_before_reset"):
            return self.recurrent_product(emit, emit("Mul", reset, state.hidden, part="reset"), rows)
        bias = self.bias.part(emit, slice(5 * self.hidden, 6 * self.hidden), "bias")
        product = emit("Add", self.recurrent_product(emit, state.hidden, rows), bias, part="bias")
        return emit("Mul", reset, product, part="reset")


CELLS: Mapping[str, type[Cell]] = {"GRU": Gru, "LSTM": Lstm, "RNN": Rnn}
