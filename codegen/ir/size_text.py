"""Lines of MLIR that compute sizes from the values of symbols."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.sizes.dims import Dim, Extent, Symbol


class SizeText:
    """Computes each size once.

    Args:
        symbols: MLIR's names of the symbols' values, of type ``index``.

    Attributes:
        lines: what was computed so far.
    """

    def __init__(self, symbols: Mapping[Symbol, str]) -> None:
        self._symbols = symbols
        self._names: dict[Dim, str] = {}
        self._sums: dict[Symbol, str] = {}
        self.lines: list[str] = []

    def name(self, dim: Dim) -> str:
        """MLIR's name of a size."""
        if dim not in self._names:
            self._names[dim] = self._computed(dim)
        return self._names[dim]

    def elements(self, dims: Sequence[Dim]) -> str:
        """MLIR's name of the product of sizes."""
        known = math.prod(dim for dim in dims if isinstance(dim, int))
        opened: list[Dim] = [dim for dim in dims if isinstance(dim, Extent)]
        names = map(self.name, opened if opened and known == 1 else [*opened, known])
        return functools.reduce(lambda one, other: self._add(f"arith.muli {one}, {other} : index"), names)

    def typed(self, tensor: TensorType) -> str:
        """A tensor's type, with its open sizes in braces behind it."""
        sizes = ", ".join(map(self.name, tensor.open_dims))
        return f"{tensor}{{{sizes}}}" if sizes else str(tensor)

    def _computed(self, dim: Dim) -> str:
        if isinstance(dim, int):
            return self._add(f"arith.constant {dim} : index")
        total = self._symbol(dim.symbols[0])
        for symbol in dim.symbols[1:]:
            total = self._add(f"arith.muli {total}, {self._symbol(symbol)} : index")
        if dim.factor != 1:
            total = self._add(f"arith.muli {total}, {self.name(dim.factor)} : index")
        if dim.offset:
            total = self._add(f"arith.addi {total}, {self.name(dim.offset)} : index")
        return total if dim.divisor == 1 else self._add(f"arith.divui {total}, {self.name(dim.divisor)} : index")

    def _symbol(self, symbol: Symbol) -> str:
        if not symbol.terms:
            return self._symbols[symbol]
        if symbol not in self._sums:
            first, *others = map(self.name, symbol.terms)
            for other in others:
                first = self._add(f"arith.addi {first}, {other} : index")
            self._sums[symbol] = first
        return self._sums[symbol]

    def _add(self, operation: str) -> str:
        name = f"%size{len(self.lines)}"
        self.lines.append(f"{name} = {operation}")
        return name
