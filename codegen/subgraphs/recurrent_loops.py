"""Recurrent layers as loops over their steps, whose bodies are matrix products and elementwise ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sartor.codegen.ir.layer import F32, TensorType

_SEPARATOR = "."
_ROW_MAP = "affine_map<(d0, d1) -> (d0, d1)>"
_COLUMN_MAP = "affine_map<(d0, d1) -> (d1)>"

PREFIX = "recurrence"
"""What names of functions that stand for loops begin with."""


@dataclass(frozen=True)
class RecurrentLoop:
    """One direction of a recurrent layer, after the product of its inputs and weights.

    Its operands are that product, ``[steps, batch, gates * hidden]``, with biases added; the recurrence matrices,
    ``[hidden, …]``; for ``gru_linear`` the bias that is added before the reset gate, ``[hidden]``; and the initial
    states, ``[batch, hidden]``. Its result are the hidden states, ``[steps, batch, hidden]``.

    Attributes:
        cell: ``rnn``, ``lstm``, ``gru``, or ``gru_linear`` if the reset gate multiplies the product with the state.
        is_reversed: whether it begins with the last step.
        activations: ONNX names.
        keeps_memory: whether a row is added to the result, which is LSTM's last memory.
    """

    cell: str
    is_reversed: bool
    activations: tuple[str, ...]
    keeps_memory: bool = False

    def symbol(self, number: int) -> str:
        """The name of the function that stands for the loop, unique by ``number``."""
        order = "reverse" if self.is_reversed else "forward"
        last = "memory" if self.keeps_memory else "states"
        return _SEPARATOR.join([PREFIX, self.cell, order, "-".join(self.activations), last, str(number)])

    @staticmethod
    def of_symbol(symbol: str) -> RecurrentLoop | None:
        """The loop that a function stands for; None if it stands for none."""
        prefix, *parts = symbol.split(_SEPARATOR)
        if prefix != PREFIX:
            return None
        cell, order, activations, last, _ = parts
        return RecurrentLoop(cell, order == "reverse", tuple(activations.split("-")), last == "memory")

    def function(self, operands: Sequence[TensorType], location: str) -> str:
        """MLIR of a function that computes the loop; ``location`` is the loop's, as ``loc(…)``."""
        return _Writer(self, operands).function(location)


class _Writer:
    """Writes the function of a loop, line by line."""

    def __init__(self, loop: RecurrentLoop, operands: Sequence[TensorType]) -> None:
        self._loop = loop
        self._operands = operands
        self._steps, self._batch, self._width = operands[0].shape
        self._hidden = operands[1].shape[0]
        self._lines: list[str] = []
        self._count = 0
        self._state = TensorType((self._batch, self._hidden), F32)
        self._kinds = {"%x": TensorType((self._batch, self._width), F32)}

    def function(self, location: str) -> str:
        states = 2 if self._loop.cell == "lstm" else 1
        initial = [f"%a{len(self._operands) - states + index}" for index in range(states)]
        rows = self._steps + self._loop.keeps_memory
        result = TensorType((rows, self._batch, self._hidden), F32)
        next_states = self._cell()
        self._store(next_states, result)
        types = [str(self._state)] * states + [str(result)]
        carried = ", ".join(f"%s{index} = {name}" for index, name in enumerate(initial))
        arguments = ", ".join(f"%a{index}: {operand}" for index, operand in enumerate(self._operands))
        body = "\n    ".join(self._lines)
        return f"""util.func private @loop({arguments}) -> {result} {{
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %i0 = arith.constant 0 : index
  %i1 = arith.constant 1 : index
  %last = arith.constant {self._steps - 1} : index
  {self._trip_count()}
  %y = tensor.empty() : {result}
  %r:{states + 1} = scf.for %i = %i0 to %steps step %i1 iter_args({carried}, %y0 = %y) -> ({", ".join(types)}) {{
    {body}
    scf.yield {", ".join(next_states)}, %y1 : {", ".join(types)}
  }} {location}
  util.return %r#{states} : {result}
}}"""

    def _trip_count(self) -> str:
        """A loop of one step would be simplified away if the compiler knew that it is one."""
        if self._steps > 1:
            return f"%steps = arith.constant {self._steps} : index"
        return "%steps = util.optimization_barrier %i1 : index"

    def _cell(self) -> list[str]:
        """Write the cell; returns the names of its next states."""
        step = "arith.subi %last, %i : index" if self._loop.is_reversed else "arith.addi %i, %i0 : index"
        self._lines.append(f"%t = {step}")
        gates = self._kinds["%x"]
        sizes = f"[1, {self._batch}, {self._width}] [1, 1, 1]"
        self._lines.append(f"%x = tensor.extract_slice %a0[%t, 0, 0] {sizes} : {self._operands[0]} to {gates}")
        cells: dict[str, Callable[[], list[str]]] = {
            "rnn": self._rnn,
            "lstm": self._lstm,
            "gru": self._gru,
            "gru_linear": self._gru_linear,
        }
        return cells[self._loop.cell]()

    def _rnn(self) -> list[str]:
        product = self._product("%s0", 1)
        return [self._map([self._gate("%x", 0), self._gate(product, 0)], f"add 0 1; {self._activation(0)} 2")]

    def _lstm(self) -> list[str]:
        product = self._product("%s0", 1)
        enter, leave, forget, fresh = ([self._gate(operand, gate) for operand in ("%x", product)] for gate in range(4))
        gate, inner, outer = (self._activation(index) for index in range(3))
        code = f"add 0 1; add 2 3; add 4 5; {gate} 7; {gate} 8; {inner} 9; mul 10 12; mul 11 6; add 13 14"
        memory = self._map([*enter, *forget, *fresh, "%s1"], code)
        hidden = self._map([*leave, memory], f"add 0 1; {gate} 3; {outer} 2; mul 4 5")
        return [hidden, memory]

    def _gru(self) -> list[str]:
        gate, inner = self._activation(0), self._activation(1)
        product = self._product("%s0", 1)
        update, reset = ([self._gate(operand, number) for operand in ("%x", product)] for number in range(2))
        kept = self._map(update, f"add 0 1; {gate} 2")
        recalled = self._map([*reset, "%s0"], f"add 0 1; {gate} 3; mul 4 2")
        fresh = [self._gate("%x", 2), self._gate(self._product(recalled, 2), 0)]
        return [self._map([*fresh, kept, "%s0"], f"add 0 1; {inner} 4; sub 3 5; mul 2 6; add 5 7")]

    def _gru_linear(self) -> list[str]:
        gate, inner = self._activation(0), self._activation(1)
        product = self._product("%s0", 1)
        update, reset, fresh = ([self._gate(operand, number) for operand in ("%x", product)] for number in range(3))
        code = (
            f"add 0 1; {gate} 8; add 2 3; {gate} 10; add 5 6; mul 11 12; add 4 13; {inner} 14; "
            "sub 7 15; mul 9 16; add 15 17"
        )
        return [self._map([*update, *reset, *fresh, "%a2", "%s0"], code)]

    def _activation(self, index: int) -> str:
        return self._loop.activations[index].lower()

    def _name(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def _product(self, state: str, operand: int) -> str:
        """Write the product of a state and the recurrence matrix at ``operand``."""
        matrix = self._operands[operand]
        kind = TensorType((self._batch, matrix.shape[1]), F32)
        empty, start, product = self._name(), self._name(), self._name()
        self._lines += [
            f"{empty} = tensor.empty() : {kind}",
            f"{start} = linalg.fill ins(%zero : f32) outs({empty} : {kind}) -> {kind}",
            f"{product} = linalg.matmul ins({state}, %a{operand} : {self._state}, {matrix}) "
            f"outs({start} : {kind}) -> {kind}",
        ]
        self._kinds[product] = kind
        return product

    def _gate(self, value: str, gate: int) -> str:
        """Write a gate's columns of the inputs' or the state's product."""
        kind = self._kinds[value]
        if kind == self._state:
            return value
        name = self._name()
        origin = f"[0, {gate * self._hidden}] [{self._batch}, {self._hidden}] [1, 1]"
        self._lines.append(f"{name} = tensor.extract_slice {value}{origin} : {kind} to {self._state}")
        return name

    def _map(self, inputs: Sequence[str], code: str) -> str:
        """Write an elementwise op.

        Args:
            inputs: its operands.
            code: operations with the numbers of what they read; operands come first, then results in order.
        """
        name, empty = self._name(), self._name()
        kinds = [str(self._operands[2]) if input_ == "%a2" else str(self._state) for input_ in inputs]
        maps = [_COLUMN_MAP if input_ == "%a2" else _ROW_MAP for input_ in inputs] + [_ROW_MAP]
        arguments = ", ".join(f"%e{index}: f32" for index in range(len(inputs)))
        lines: list[str] = []
        for index, part in enumerate(code.split(";"), len(inputs)):
            operation, *read = part.split()
            lines += _scalar_code(operation, f"%e{index}", [f"%e{number}" for number in read])
        last = len(inputs) + code.count(";")
        self._lines += [
            f"{empty} = tensor.empty() : {self._state}",
            f"{name} = linalg.generic {{indexing_maps = [{', '.join(maps)}], "
            'iterator_types = ["parallel", "parallel"]}'
            f" ins({', '.join(inputs)} : {', '.join(kinds)}) outs({empty} : {self._state}) {{",
            f"^bb0({arguments}, %out: f32):",
            *lines,
            f"linalg.yield %e{last} : f32",
            f"}} -> {self._state}",
        ]
        return name

    def _store(self, states: Sequence[str], result: TensorType) -> None:
        """Write the hidden state to its row, and the memory to the last one."""
        into = "%y1" if len(states) == 1 or not self._loop.keeps_memory else "%y2"
        sizes = f"[1, {self._batch}, {self._hidden}] [1, 1, 1] : {self._state} into {result}"
        self._lines.append(f"{into} = tensor.insert_slice {states[0]} into %y0[%t, 0, 0] {sizes}")
        if into != "%y1":
            row = f"[{self._steps}, 0, 0]"
            self._lines.append(f"%y1 = tensor.insert_slice {states[1]} into %y2{row} {sizes}")


def _scalar_code(operation: str, result: str, read: Sequence[str]) -> list[str]:
    """Lines that compute one number."""
    if operation == "sigmoid":
        inner = [f"{result}_{part}" for part in ("minus", "exp", "sum")]
        return [
            f"{inner[0]} = arith.negf {read[0]} : f32",
            f"{inner[1]} = math.exp {inner[0]} : f32",
            f"{inner[2]} = arith.addf {inner[1]}, %one : f32",
            f"{result} = arith.divf %one, {inner[2]} : f32",
        ]
    if operation == "relu":
        return [f"{result} = arith.maximumf {read[0]}, %zero : f32"]
    name = "math.tanh" if operation == "tanh" else f"arith.{operation}f"
    return [f"{result} = {name} {', '.join(read)} : f32"]
