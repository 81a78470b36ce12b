"""Mixtures of experts whose weights are in few bits: each token is multiplied by those of its experts alone.

Rows, each of a token and one of its experts, have parts for all experts, of which its own alone is not zero. Weights of
all experts lie behind each other, and a kernel reads those that belong to parts with numbers
(``codegen/kernels/encoded/present_parts.py``). Rows are sorted by their experts, so that those next to each other read
the same weights.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.rewrites.operator_sets.contrib.blocks.block_quantised import encoded_product
from sartor.onnx_model.rewrites.operator_sets.contrib.blocks.chosen_parts import with_chosen_part
from sartor.onnx_model.rewrites.operator_sets.contrib.blocks.expert_matrix import ExpertMatrix
from sartor.onnx_model.rewrites.operator_sets.contrib.expert_activations import ExpertActivation
from sartor.onnx_model.rewrites.operator_sets.contrib.expert_routes import ExpertRoutes

# More rows than there are, by which numbers of experts are multiplied: products fit 32 bits.
_MOST_ROWS = 1 << 20
# Of the parts of rows that are multiplied at once, but for so few rows.
_MOST_NUMBERS, _LEAST_HALVED = 1 << 23, 16


class ExpertParts:
    """The products of a node.

    Args:
        emit: takes the nodes.
        routes: of the tokens.
        matrices: the first, the second, and the one of gates that are apart, if any.
        rows: how many tokens there are.
        chosen: experts of a token.
        halves: whether many rows are multiplied in halves, which other numbers of them are not.
    """

    def __init__(
        self,
        emit: Emitter,
        routes: ExpertRoutes,
        matrices: list[ExpertMatrix],
        rows: int,
        chosen: int,
        *,
        halves: bool,
    ) -> None:
        self._halves = halves
        self._emit, self._routes, self._rows, self._chosen = emit, routes, rows, chosen
        self._first, self._second, *self._gates = matrices
        self._activation = ExpertActivation(emit, self._second.depth)

    def of(self, tokens: str) -> str:
        """The products by weights in few bits, of each token by its chosen experts: rows, each of a token and an
        expert, have parts for all experts, of which its own alone is not zero and multiplied.

        Rows are sorted by their experts, so that those next to each other read the same weights.
        """
        emit, rows, chosen = self._emit, self._rows, self._chosen
        best, numbers = self._routes.chosen()
        count = rows * chosen
        repeated = self._repeated(tokens) if chosen > 1 else tokens
        column = emit("Reshape", numbers, self._shape(count, 1), part="numbers_of_rows")
        present = self._present(column, emit("Reshape", best, self._shape(count, 1), part="weights_of_rows"))
        is_sorted = rows > 1
        places = ""
        if is_sorted:
            places, order = self._order(present, count)
            names = (repeated, column, present)
            repeated, column, present = (emit("Gather", name, order, part="sorted", axis=0) for name in names)
        products = [self._product(repeated, matrix, column, present) for matrix in (self._first, *self._gates)]
        first, *gates = (
            emit("Reshape", made, self._shape(count, 1, self._first.results), part="apart") for made in products
        )
        inner = emit("Reshape", self._activation.of(first, gates), self._shape(count, self._second.depth), part="inner")
        made = self._product(inner, self._second, column, present)
        if is_sorted:
            made = emit("Gather", made, places, part="in_order", axis=0)
        apart = emit("Reshape", made, self._shape(rows, chosen, self._second.results), part="per_expert")
        weighted = emit("Mul", apart, emit("Reshape", best, self._shape(rows, chosen, 1), part="best"), part="weighted")
        return emit("ReduceSum", weighted, emit.constant([1], "axis"), part="sum", keepdims=0)

    def _present(self, numbers: str, weights: str) -> str:
        """The numbers of rows' experts, ``[rows, 1]``, and -1, which none has, where the weight is zero: what such an
        expert overflows to would stay."""
        emit = self._emit
        is_used = emit("Greater", weights, emit.like(0, emit.node.input[1], "zero"), part="is_used")
        return emit("Where", is_used, numbers, emit.constant([-1], "no_expert"), part="numbers_of_present")

    def _repeated(self, tokens: str) -> str:
        """Each token as many times as it has experts, ``[rows * chosen, depth]``."""
        emit, rows, chosen = self._emit, self._rows, self._chosen
        column = emit("Reshape", tokens, self._shape(rows, 1, self._first.depth), part="column")
        repeated = emit("Expand", column, self._shape(rows, chosen, self._first.depth), part="each")
        return emit("Reshape", repeated, self._shape(rows * chosen, self._first.depth), part="rows")

    def _order(self, column: str, count: int) -> tuple[str, str]:
        """The places of rows once they are sorted by their numbers ``[rows, 1]``, and the rows by their places."""
        emit, numbers = self._emit, np.arange(count, dtype=np.int64)
        # Numbers that differ, in the order of the rows among equal ones.
        unequal = emit("Mul", column, emit.constant([_MOST_ROWS], "rows"), part="scaled_numbers")
        unequal = emit("Add", unequal, emit.constant(numbers[:, None], "row_numbers", np.int64), part="unequal")
        line = emit("Reshape", unequal, self._shape(1, count), part="line")
        is_before = emit("Cast", emit("Less", line, unequal, part="is_before"), part="before", to=TensorProto.INT64)
        places = emit("ReduceSum", is_before, emit.constant([1], "axis"), part="places", keepdims=0)
        is_at = emit("Equal", places, emit.constant(numbers[:, None], "row_numbers", np.int64), part="is_at")
        at = emit("Where", is_at, emit.constant(numbers, "rows_in_line", np.int64), emit.constant(0, "none", np.int64))
        return places, emit("ReduceSum", at, emit.constant([1], "axis"), part="order", keepdims=0)

    def _product(self, rows: str, matrix: ExpertMatrix, numbers: str, present: str) -> str:
        """What the experts of rows make of them, ``[rows, results]``; ``numbers`` are ``[rows, 1]``, and those of
        experts that are computed."""
        emit, count = self._emit, self._rows * self._chosen
        made = self._product_of_some(rows, present, count, matrix)
        if not matrix.bias:
            return made
        flat = emit("Reshape", numbers, self._shape(count), part="numbers_of_biases")
        return emit("Add", made, emit("Gather", matrix.bias, flat, part="chosen_biases", axis=0), part="bias")

    def _product_of_some(self, rows: str, numbers: str, count: int, matrix: ExpertMatrix) -> str:
        """The products of ``count`` rows: of halves of them where their parts would take much memory."""
        emit, parts = self._emit, self._first.experts
        assert matrix.blocks is not None
        is_small = count < _LEAST_HALVED or count * parts * matrix.depth <= _MOST_NUMBERS
        if is_small or not self._halves:
            spread = with_chosen_part(emit, rows, numbers, parts, (count, matrix.depth))
            return encoded_product(emit, spread, matrix.blocks)
        sizes = [count // 2, count - count // 2]
        split = emit.constant(sizes, "sizes")
        row_halves, number_halves = (
            emit.many("Split", name, split, part="halves", outputs=("", ""), axis=0) for name in (rows, numbers)
        )
        made = [
            self._product_of_some(one, other, size, matrix)
            for one, other, size in zip(row_halves, number_halves, sizes, strict=True)
        ]
        return emit("Concat", *made, part="joined", axis=0)

    def _shape(self, *sizes: int) -> str:
        return self._emit.constant(list(sizes), "shape")
