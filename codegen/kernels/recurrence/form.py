"""A layer that loops over steps, as matrix products with its state and elementwise ops between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.sizes.dims import Count
from sartor.codegen.ir.sizes.fit import Fit
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import body_of, copies, defining_op, indexing_maps, is_elementwise
from sartor.codegen.mlir.snippet import tensor_parts

_LOOP = "scf.for"
_SLICE = "tensor.extract_slice"
_INSERT = "tensor.insert_slice"
# They compute the row of a step, and the zeros that products start from.
_HARMLESS = frozenset({"arith.addi", "arith.constant", "arith.subi", "linalg.fill", "tensor.empty"})
_MATRIX_MAPS = ("(d0, d1, d2) -> (d0, d2)", "(d0, d1, d2) -> (d2, d1)", "(d0, d1, d2) -> (d0, d1)")


@dataclass(frozen=True)
class InputGate:
    """Columns of the product with the inputs, in the row of the current step.

    Attributes:
        column: the first.
    """

    column: int


@dataclass(frozen=True)
class StateGate:
    """Columns of a product with the state.

    Attributes:
        product: its number.
        gate: which of the columns, counted in widths of the state.
    """

    product: int
    gate: int


@dataclass(frozen=True)
class CarriedState:
    """A state that one step hands to the next.

    Attributes:
        number: its position among the states.
    """

    number: int


@dataclass(frozen=True)
class Column:
    """An argument with a number for each element of the state.

    Attributes:
        memory: its position.
    """

    memory: int


Operand: TypeAlias = InputGate | StateGate | CarriedState | Column | ir.Value


@dataclass(frozen=True)
class StateProduct:
    """A product of a state, or of what is computed of it, and a matrix.

    Attributes:
        factor: what is multiplied.
        matrix: position of the argument ``[hidden, gates * hidden]``.
        gates: how many widths of the state the product has.
    """

    factor: Operand
    matrix: int
    gates: int


@dataclass(frozen=True)
class Recurrence:
    """A layer as a loop over its steps.

    Attributes:
        steps: number of steps.
        batch: rows of the state.
        hidden: columns of the state.
        inputs: position of the argument that has the product with the inputs, ``[steps, batch, gates * hidden]``.
        input_columns: its columns.
        is_reversed: whether the last step comes first.
        products: in order.
        maps: elementwise ops in order, by their results: what each reads.
        initial: positions of the arguments that hold the initial states.
        next: what computes each state of the next step.
        hidden_state: number of the state that is written to the result, in the row of the step.
        last_state: number of the state that is written to the row after the last step; None for none.
    """

    steps: Count
    batch: int
    hidden: int
    inputs: int
    input_columns: int
    is_reversed: bool
    products: tuple[StateProduct, ...]
    maps: Mapping[ir.Value, tuple[Operand, ...]]
    initial: tuple[int, ...]
    next: tuple[Operand, ...]
    hidden_state: int
    last_state: int | None

    def opened(self, twin: Recurrence, fit: Fit) -> Recurrence:
        """The layer for any number of steps.

        Args:
            twin: the same layer with another number, whose code differs in nothing else.
            fit: finds what the number follows from.

        Raises:
            RejectionError: if more than the number of steps is known only when it runs.
        """
        fixed = [
            (recurrence.batch, recurrence.hidden, recurrence.input_columns, recurrence.is_reversed)
            for recurrence in (self, twin)
        ]
        if fixed[0] != fixed[1]:
            raise RejectionError("more than the number of steps is known only when it runs")
        return replace(self, steps=fit.count(_known_count(self.steps), _known_count(twin.steps)))

    def phase(self, operand: Operand) -> int:
        """How many products have to be complete, one after the other, before a value can be computed."""
        if isinstance(operand, StateGate):
            return operand.product + 1
        if isinstance(operand, ir.Value):
            return max(1, *map(self.phase, self.maps[operand]))
        return 0

    def states_of(self, number: int) -> list[tuple[int, Operand]]:
        """The states whose next values can be computed when so many products are complete, and what computes them."""
        return [(index, value) for index, value in enumerate(self.next) if max(1, self.phase(value)) == number]

    @property
    def stored(self) -> tuple[ir.Value, ...]:
        """Values that a later product, or an op after it, reads."""
        read = {product.factor for product in self.products}
        late = {read for value in self.maps for read in self.maps[value] if self.phase(read) < self.phase(value)}
        return tuple(value for value in self.maps if value in read or value in late)


def recurrence_of(function: ir.Operation) -> Recurrence:
    """The loop that a layer's function is.

    Raises:
        RejectionError: if it computes anything else.
    """
    block = body_of(function)
    ops = [view.operation for view in block.operations]
    loops = [op for op in ops if op.name == _LOOP]
    if len(loops) != 1 or list(ops[-1].operands) != list(loops[0].results)[-1:]:
        raise RejectionError("the layer is not one loop over steps")
    return _Reader(list(block.arguments), loops[0]).read()


class _Reader:
    """Reads the body of a loop, op by op."""

    def __init__(self, arguments: Sequence[ir.Value], loop: ir.Operation) -> None:
        self._arguments = list(arguments)
        self._loop = loop
        self._block = loop.regions[0].blocks[0]
        self._states = list(self._block.arguments)[1:-1]
        self._values: dict[ir.Value, Operand] = {state: CarriedState(index) for index, state in enumerate(self._states)}
        self._rows: dict[ir.Value, int] = {}
        self._products: dict[ir.Value, StateProduct] = {}
        self._maps: dict[ir.Value, tuple[Operand, ...]] = {}
        self._written: list[tuple[ir.Value, int | None]] = []

    def read(self) -> Recurrence:
        result, _ = tensor_parts(self._loop.results[-1])
        *ops, end = [view.operation for view in self._block.operations]
        for op in ops:
            self._take(op)
        (inputs,) = set(self._rows.values())
        (steps, batch, columns), _ = tensor_parts(self._arguments[inputs])
        self._check_range(steps)
        following = list(end.operands)[:-1]
        last = [following.index(value) for value, row in self._written if row == steps]
        (hidden,) = [following.index(value) for value, row in self._written if row is None]
        return Recurrence(
            *(steps, batch, result[-1], inputs, columns, self._is_reversed()),
            products=tuple(self._products.values()),
            maps=self._maps,
            initial=tuple(self._argument(value) for value in list(self._loop.operands)[3:-1]),
            next=tuple(self._known(value) for value in following),
            hidden_state=hidden,
            last_state=last[0] if last else None,
        )

    def _check_range(self, steps: int) -> None:
        """Make sure that the loop takes one step after the other; the number of one alone is hidden."""
        lower, upper, step = (_constant(operand) for operand in list(self._loop.operands)[:3])
        if (lower, step) != (0, 1) or upper not in (steps, None if steps == 1 else steps):
            raise RejectionError("the loop does not take a step for each row of its inputs")

    def _known(self, value: ir.Value) -> Operand:
        if value not in self._values:
            raise RejectionError("the loop computes with what is neither its state nor its inputs")
        return self._values[value]

    def _is_reversed(self) -> bool:
        return any(view.operation.name == "arith.subi" for view in self._block.operations)

    def _argument(self, value: ir.Value) -> int:
        if value not in self._arguments:
            raise RejectionError("the loop reads what is no argument of the layer")
        return self._arguments.index(value)

    def _take(self, op: ir.Operation) -> None:
        if op.name == _SLICE:
            self._take_slice(op)
        elif op.name == _INSERT:
            self._take_insertion(op)
        elif op.name == "linalg.generic" and _is_matrix_product(op):
            factor, matrix, start = op.operands
            if not _is_zero(start):
                raise RejectionError("a product of the state starts from a value that is not zero")
            width, hidden = tensor_parts(matrix)[0][1], tensor_parts(factor)[0][1]
            product = StateProduct(self._known(factor), self._argument(matrix), width // hidden)
            self._products[op.results[0]] = product
            self._values[op.results[0]] = StateGate(len(self._products) - 1, 0)
        elif is_elementwise(op) and not copies(op):
            self._maps[op.results[0]] = tuple(self._operand(operand) for operand in list(op.operands)[:-1])
            self._values[op.results[0]] = op.results[0]
        elif op.name not in _HARMLESS and not (op.name == "linalg.generic" and copies(op)):
            raise RejectionError(f"the loop has an op that recurrent layers have not, {op.name}")

    def _take_slice(self, op: ir.Operation) -> None:
        source, result = op.operands[0], op.results[0]
        if len(op.operands) > 1:
            self._rows[result] = self._argument(source)
            self._values[result] = InputGate(0)
            return
        column = list(ir.DenseI64ArrayAttr(op.attributes["static_offsets"]))[-1]
        width = tensor_parts(result)[0][-1]
        if source in self._rows:
            self._values[result] = InputGate(column)
        elif source in self._products:
            number = list(self._products).index(source)
            self._values[result] = StateGate(number, column // width)
        else:
            raise RejectionError("the loop reads a part of a tensor in another way than by gates")

    def _take_insertion(self, op: ir.Operation) -> None:
        row = next(iter(ir.DenseI64ArrayAttr(op.attributes["static_offsets"])))
        self._written.append((op.operands[0], None if len(op.operands) > 2 else row))

    def _operand(self, value: ir.Value) -> Operand:
        return self._values[value] if value in self._values else Column(self._argument(value))


def _constant(value: ir.Value) -> int | None:
    op = defining_op(value)
    if op is None or op.name != "arith.constant":
        return None
    return int(ir.IntegerAttr(op.attributes["value"]).value)


def _is_matrix_product(op: ir.Operation) -> bool:
    return (
        tuple(str(map_of_operand).removeprefix("affine_map<").rstrip(">") for map_of_operand in _maps(op))
        == _MATRIX_MAPS
    )


def _maps(op: ir.Operation) -> Iterator[str]:
    return (str(indexing_map) for indexing_map in indexing_maps(op))


def _is_zero(value: ir.Value) -> bool:
    """Whether a tensor is filled with zero."""
    op = defining_op(value)
    if op is None or op.name not in ("linalg.generic", "linalg.fill"):
        return False
    constant = defining_op(op.operands[0])
    return constant is not None and str(constant.attributes["value"]).startswith("0.000000e+00")


def _known_count(count: Count) -> int:
    if not isinstance(count, int):
        raise RejectionError(f"{count} is known only when the layer runs")
    return count
