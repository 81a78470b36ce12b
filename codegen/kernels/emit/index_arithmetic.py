"""Arithmetic and comparisons on indices, folded if operands are known at compile time."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TypeAlias

from sartor.codegen.ir.sizes.dims import Count, Product, Symbol
from sartor.codegen.mlir.iree_compiler import arith, ir

Index: TypeAlias = int | ir.Value
Condition: TypeAlias = bool | ir.Value


class IndexArithmetic:
    """Emits arithmetic on indices at the current insertion point.

    Args:
        entry: block of the kernel's function; constants go to its beginning.

    Attributes:
        symbols: values of the sizes that are known only when the kernel runs.
    """

    def __init__(self, entry: ir.Block) -> None:
        self.symbols: Mapping[Symbol, ir.Value] = {}
        self._entry = entry
        self._constants: dict[int, ir.Value] = {}

    def value(self, index: Index) -> ir.Value:
        """An index as a value."""
        if not isinstance(index, int):
            return index
        if index not in self._constants:
            with ir.InsertionPoint.at_block_begin(self._entry):
                self._constants[index] = arith.constant(ir.IndexType.get(), index)
        return self._constants[index]

    def size(self, dim: Count) -> Index:
        """The size of a dimension, or of several together."""
        if isinstance(dim, int):
            return dim
        if isinstance(dim, Product):
            return functools.reduce(self.times, map(self.size, dim.parts), dim.factor)
        total: Index = dim.factor
        for symbol in dim.symbols:
            total = self.times(total, self._symbol(symbol))
        return self.divide(self.add(total, dim.offset), dim.divisor)[0]

    def _symbol(self, symbol: Symbol) -> Index:
        return self.add(*map(self.size, symbol.terms)) if symbol.terms else self.symbols[symbol]

    def add(self, *terms: Index) -> Index:
        """The sum. Constants are added last, where address computation makes them free."""
        total: ir.Value | None = None
        constant = 0
        for term in terms:
            if isinstance(term, int):
                constant += term
            else:
                total = term if total is None else arith.addi(total, term)
        if total is None:
            return constant
        return arith.addi(total, self.value(constant)) if constant else total

    def mul(self, index: Index, factor: int) -> Index:
        if isinstance(index, int):
            return index * factor
        if factor in (0, 1):
            return index if factor else 0
        return arith.muli(index, self.value(factor))

    def times(self, one: Index, other: Index) -> Index:
        """The product of two indices."""
        if isinstance(other, int):
            return self.mul(one, other)
        return self.mul(other, one) if isinstance(one, int) else arith.muli(one, other)

    def sub(self, index: Index, other: Index) -> Index:
        if isinstance(other, int):
            return self.add(index, -other)
        return arith.subi(self.value(index), other)

    def divide_up(self, index: Index, divisor: int) -> Index:
        """``index / divisor`` rounded towards positive infinity; ``index`` may be negative."""
        if isinstance(index, int):
            return -(-index // divisor)
        return index if divisor == 1 else arith.ceildivsi(index, self.value(divisor))

    def divide(self, index: Index, divisor: Index) -> tuple[Index, Index]:
        """Quotient and remainder of an index that is not negative."""
        if isinstance(index, int) and isinstance(divisor, int):
            return divmod(index, divisor)
        is_one = isinstance(divisor, int) and divisor == 1
        quotient = index if is_one else arith.divui(self.value(index), self.value(divisor))
        return quotient, self.sub(index, self.times(quotient, divisor))

    def minimum(self, one: Index, other: Index) -> Index:
        if isinstance(one, int) and isinstance(other, int):
            return min(one, other)
        return arith.minsi(self.value(one), self.value(other))

    def maximum(self, one: Index, other: Index) -> Index:
        if isinstance(one, int) and isinstance(other, int):
            return max(one, other)
        return arith.maxsi(self.value(one), self.value(other))

    def equal(self, one: Index, other: Index) -> Condition:
        """Whether two indices are equal."""
        if isinstance(one, int) and isinstance(other, int):
            return one == other
        return arith.cmpi(arith.CmpIPredicate.eq, self.value(one), self.value(other))

    def less(self, one: Index, other: Index) -> Condition:
        """Whether an index is less than another."""
        if isinstance(one, int) and isinstance(other, int):
            return one < other
        return arith.cmpi(arith.CmpIPredicate.slt, self.value(one), self.value(other))

    def chosen(self, condition: Condition, one: Index, other: Index) -> Index:
        """One of two indices: the first if the condition is true."""
        if isinstance(condition, bool):
            return one if condition else other
        return arith.select(condition, self.value(one), self.value(other))

    def within(self, index: Index, end: int) -> Condition:
        """Whether ``0 <= index < end``."""
        if isinstance(index, int):
            return 0 <= index < end
        if end <= 0:
            return False
        return arith.cmpi(arith.CmpIPredicate.ult, index, self.value(end))

    def all_of(self, *conditions: Condition) -> Condition:
        """Whether all conditions hold."""
        if any(condition is False for condition in conditions):
            return False
        open_ones = [condition for condition in conditions if condition is not True]
        return functools.reduce(arith.andi, open_ones) if open_ones else True

    def any_of(self, *conditions: Condition) -> Condition:
        """Whether one of the conditions holds."""
        if any(condition is True for condition in conditions):
            return True
        open_ones = [condition for condition in conditions if condition is not False]
        return functools.reduce(arith.ori, open_ones) if open_ones else False
