"""Weights of recurrent operators: constants, which are cut here, or computed ones, which are cut as the model runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from onnx import TensorProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array


class Matrix(Protocol):
    """The matrix of one direction, by which inputs or the state are multiplied."""

    def product(self, emit: Emitter, value: str, rows: slice, hint: str, part: str) -> str:
        """The product of a value [..., width] and some of the first dimension of the matrix, transposed."""


class Weights(Matrix, Protocol):
    """One operand's weights of one direction; the first dimension is that of the gates."""

    @property
    def are_zero(self) -> bool:
        """Whether they are known to be all zero."""

    def part(self, emit: Emitter, rows: slice, hint: str) -> str:
        """Some of the first dimension."""

    def transposed(self, emit: Emitter, rows: slice, hint: str) -> str:
        """Some of the first dimension of a matrix, which becomes the last."""

    def total(self, emit: Emitter, first: Sequence[slice], second: Sequence[slice]) -> str:
        """The sum of two parts of a vector, each joined from pieces; the second may be shorter."""


class _Multiplied:
    """Weights in floats as a matrix."""

    def transposed(self, emit: Emitter, rows: slice, hint: str) -> str:
        raise NotImplementedError

    def product(self, emit: Emitter, value: str, rows: slice, hint: str, part: str) -> str:
        return emit("MatMul", value, self.transposed(emit, rows, hint), part=part)


@dataclass(frozen=True)
class QuantisedMatrix:
    """A matrix of bytes, by which values are multiplied that are quantised by their own range.

    Attributes:
        values: [width, gates * hidden], transposed already.
        scale, zero_point: of all, or of each column.
    """

    values: Array
    scale: Array
    zero_point: Array

    def product(self, emit: Emitter, value: str, rows: slice, hint: str, part: str) -> str:
        """The sums of integers are exact, and scaled in floats as ONNX Runtime does."""
        scale, point = (
            step.reshape(-1)[rows] if step.size > 1 else step.reshape(()) for step in (self.scale, self.zero_point)
        )
        quantised, step, zero = emit.many("DynamicQuantizeLinear", value, part=f"{hint}_range", outputs=("", "", ""))
        matrix = emit.shared_constant(np.ascontiguousarray(self.values[:, rows]), hint)
        points = emit.shared_constant(point, f"{hint}_zero_point")
        sums = emit("MatMulInteger", quantised, matrix, zero, points, part=part)
        floats = emit("Cast", sums, part=f"{hint}_floats", to=TensorProto.FLOAT)
        scales = emit("Mul", step, emit.shared_constant(scale, f"{hint}_scale"), part=f"{hint}_step")
        return emit("Mul", floats, scales, part=f"{hint}_scaled")


@dataclass(frozen=True)
class ConstantWeights(_Multiplied):
    """Weights that the model holds."""

    values: Array

    @property
    def are_zero(self) -> bool:
        return not self.values.any()

    def part(self, emit: Emitter, rows: slice, hint: str) -> str:
        return emit.shared_constant(self.values[rows], hint)

    def transposed(self, emit: Emitter, rows: slice, hint: str) -> str:
        return emit.shared_constant(np.ascontiguousarray(self.values[rows].T), hint)

    def total(self, emit: Emitter, first: Sequence[slice], second: Sequence[slice]) -> str:
        long, short = (np.concatenate([self.values[row] for row in rows]) for rows in (first, second))
        total = long.copy()
        total[: len(short)] += short
        return emit.constant(total, "bias")


@dataclass(frozen=True)
class ComputedWeights(_Multiplied):
    """Weights that are an input or computed.

    Attributes:
        name: the operand, [directions, …].
        direction: which of its first dimension is meant.
        is_matrix: whether there are two dimensions beside it.
    """

    name: str
    direction: int
    is_matrix: bool
    _known: dict[tuple[int | None, int | None], str] = field(default_factory=dict, compare=False)

    @property
    def are_zero(self) -> bool:
        return False

    def part(self, emit: Emitter, rows: slice, hint: str) -> str:
        key = (rows.start, rows.stop)
        if key not in self._known:
            one = emit.constant(np.asarray(self.direction), "direction")
            value = emit("Gather", self.name, one, part="direction", axis=0)
            if rows.stop is not None:
                bounds = [emit.constant([bound], "bound") for bound in (rows.start or 0, rows.stop, 0)]
                value = emit("Slice", value, *bounds, part="rows")
            self._known[key] = emit("Transpose", value, part="turn", perm=[1, 0]) if self.is_matrix else value
        return self._known[key]

    def transposed(self, emit: Emitter, rows: slice, hint: str) -> str:
        return self.part(emit, rows, hint)

    def total(self, emit: Emitter, first: Sequence[slice], second: Sequence[slice]) -> str:
        pieces = [self.part(emit, rows_of_part, "bias") for rows_of_part in first]
        others = [self.part(emit, rows_of_part, "bias") for rows_of_part in second]
        sums = [emit("Add", *pair, part="add_bias") for pair in zip(pieces, others, strict=False)]
        joined = [*sums, *pieces[len(others) :]]
        return joined[0] if len(joined) == 1 else emit("Concat", *joined, part="join_bias", axis=0)
