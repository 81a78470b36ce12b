"""Emit the product of a small constant matrix and a few vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.mlir.iree_compiler import arith, ir

Row = tuple[Fraction, ...]
# Rows that two columns have in common, above which their sum and difference save additions.
_SHARED = 2


def transform(asm: Assembler, matrix: Sequence[Row], vectors: Sequence[ir.Value]) -> list[ir.Value]:
    """``matrix`` times the column of ``vectors``, which are floats, or integers if the matrix has no fractions.

    Two rows that differ only in the signs of some columns, as those of points p and -p do, share their sums. So do
    columns of integers in more than two rows; of floats, whose products are added at once, that would save nothing.
    """
    if _is_integer(vectors[0]):
        matrix, vectors = _with_sums(matrix, vectors)
    results: dict[int, ir.Value] = {}
    for index, row in enumerate(matrix):
        if index in results:
            continue
        partner = next((later for later in range(index + 1, len(matrix)) if _mirrored(row, matrix[later])), None)
        if partner is None:
            results[index] = _combination(asm, row, vectors)
            continue
        even = tuple((one + other) / 2 for one, other in zip(row, matrix[partner], strict=True))
        odd = tuple((one - other) / 2 for one, other in zip(row, matrix[partner], strict=True))
        common, differing = _combination(asm, even, vectors), _combination(asm, odd, vectors)
        results[index] = _sum(common, differing)
        results[partner] = _difference(common, differing)
    return [results[index] for index in range(len(matrix))]


def _mirrored(row: Row, other: Row) -> bool:
    """Whether two rows agree up to signs, some of which agree and some do not."""
    pairs = list(zip(row, other, strict=True))
    return (
        all(abs(one) == abs(two) for one, two in pairs)
        and any(one == two != 0 for one, two in pairs)
        and any(one == -two != 0 for one, two in pairs)
    )


def _with_sums(matrix: Sequence[Row], vectors: Sequence[ir.Value]) -> tuple[list[Row], list[ir.Value]]:
    """The same product, with the sum and the difference of two vectors in place of these where that takes fewer
    additions."""
    columns, with_sums = [list(column) for column in zip(*matrix, strict=True)], [*vectors]
    for one, other in combinations(range(len(columns)), 2):
        pair = tuple(columns[one]), tuple(columns[other])
        if _mirrored(*pair) and sum(map(bool, pair[0])) > _SHARED:
            with_sums[one], with_sums[other] = (
                _sum(with_sums[one], with_sums[other]),
                _difference(with_sums[one], with_sums[other]),
            )
            columns[one], columns[other] = (
                [(a + sign * b) / 2 for a, b in zip(*pair, strict=True)] for sign in (1, -1)
            )
    return [tuple(row) for row in zip(*columns, strict=True)], with_sums


def _combination(asm: Assembler, row: Row, vectors: Sequence[ir.Value]) -> ir.Value:
    """The sum of coefficient times vector; terms with coefficient one come first, as they need no product."""
    if _is_integer(vectors[0]):
        return _whole_combination(row, vectors)
    terms = sorted(
        ((coefficient, vector) for coefficient, vector in zip(row, vectors, strict=True) if coefficient),
        key=lambda term: term[0] != 1,
    )
    (first, total), *rest = terms
    if first != 1:
        total = arith.mulf(total, _splat(asm, first, total))
    for coefficient, vector_of_term in rest:
        if coefficient == 1:
            total = _sum(total, vector_of_term)
        elif coefficient == -1:
            total = _difference(total, vector_of_term)
        else:
            total = asm.multiply_add(vector_of_term, _splat(asm, coefficient, vector_of_term), total)
    return total


def _whole_combination(row: Row, vectors: Sequence[ir.Value]) -> ir.Value:
    """The same of integers: what divides all coefficients multiplies the sum, and no term is negated."""
    whole = [int(coefficient) for coefficient in row]
    common = math.gcd(*whole)
    if all(coefficient <= 0 for coefficient in whole):
        common = -common
    terms = sorted(
        ((coefficient // common, vector) for coefficient, vector in zip(whole, vectors, strict=True) if coefficient),
        key=lambda term: (term[0] != 1, term[0] < 0),
    )
    (first, vector), *rest = terms
    total = _multiple(vector, first)
    for coefficient, vector_of_term in rest:
        add = _sum if coefficient > 0 else _difference
        total = add(total, _multiple(vector_of_term, abs(coefficient)))
    return _multiple(total, common)


def _multiple(value: ir.Value, factor: int) -> ir.Value:
    """Integers times a constant, modulo the power of two that their type holds; LLVM shifts where that is faster."""
    if factor == 1:
        return value
    kind = ir.VectorType(value.type)
    number = ir.IntegerAttr.get(kind.element_type, factor)
    return arith.muli(value, arith.constant(kind, ir.DenseElementsAttr.get_splat(kind, number)))


def _sum(one: ir.Value, other: ir.Value) -> ir.Value:
    return arith.addi(one, other) if _is_integer(one) else arith.addf(one, other)


def _difference(one: ir.Value, other: ir.Value) -> ir.Value:
    return arith.subi(one, other) if _is_integer(one) else arith.subf(one, other)


def _is_integer(value: ir.Value) -> bool:
    return isinstance(_element(value), ir.IntegerType)


def _splat(asm: Assembler, value: Fraction, like: ir.Value) -> ir.Value:
    return asm.splat(ir.FloatAttr.get(_element(like), float(value)))


def _element(value: ir.Value) -> ir.Type:
    """The type of a vector's elements; on a GPU an invocation has one of them."""
    return value.type.element_type if isinstance(value.type, ir.VectorType) else value.type
