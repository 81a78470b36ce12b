"""The sizes of a call: read from what the caller gives, and passed to the code of all layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sartor.codegen.ir.size_text import SizeText
from sartor.codegen.ir.sizes.dims import Symbol, symbols_in
from sartor.codegen.linking.functions.entries import Entry
from sartor.codegen.linking.functions.quoted import quoted


class OpenSizes(SizeText):
    """The sizes in an entry function, whose arguments are ``%in0``, and so on.

    Args:
        entry: what it takes and gives.
    """

    def __init__(self, entry: Entry) -> None:
        ports = (*entry.inputs, *entry.outputs)
        self._symbols_used = symbols_in(open_dim for port in ports for open_dim in port.logical.open_dims)
        super().__init__({symbol: f"%symbol{index}" for index, symbol in enumerate(self._symbols_used)})
        self._entry = entry

    def values(self, symbols: Sequence[Symbol]) -> list[str]:
        """MLIR's names of the values of symbols."""
        return [self._symbols[symbol] for symbol in symbols]

    def read(self, besides: Symbol | None = None, *, is_checked: bool = True) -> Iterator[str]:
        """Lines that read the symbols from the shapes of the arguments, each from the first that has it.

        Args:
            besides: a symbol that is known already.
            is_checked: whether calls end whose sizes are out of range.
        """
        for symbol in self._symbols_used:
            if symbol == besides:
                continue
            index, axis, offset = self._place(symbol)
            name = self._symbols[symbol]
            read = f"hal.buffer_view.dim<%in{index} : !hal.buffer_view>[{axis}] : index"
            if offset:
                yield f"{name}_read = {read}"
                yield f"{name}_less = arith.constant {offset} : index"
                read = f"arith.subi {name}_read, {name}_less : index"
            yield f"{name} = {read}"
            if is_checked:
                yield from _within(name, symbol)

    def _place(self, symbol: Symbol) -> tuple[int, int, int]:
        """An input, its axis that has the size, and what is added to it there, which is nothing if there is such a one.

        All other dimensions are compared with what follows from the symbols where inputs are imported.
        """
        places = [
            (index, axis, dim.offset)
            for index, port in enumerate(self._entry.inputs)
            for axis, dim in enumerate(port.logical.dims or ())
            if not isinstance(dim, int) and dim.shifted == symbol
        ]
        if not places:
            raise ValueError(f"no input of '{self._entry.name}' has the size {symbol}")
        return min(places, key=lambda place: place[2] != 0)


def _within(name: str, symbol: Symbol) -> Iterator[str]:
    """Lines that end a call whose size is out of range, as code reads tables up to the size, and divides it."""
    yield f"{name}_least = arith.constant {symbol.least} : index"
    yield f"{name}_most = arith.constant {symbol.most} : index"
    yield f"{name}_from = arith.cmpi uge, {name}, {name}_least : index"
    yield f"{name}_to = arith.cmpi ule, {name}, {name}_most : index"
    yield f"{name}_within = arith.andi {name}_from, {name}_to : i1"
    if symbol.multiple != 1:
        yield f"{name}_multiple = arith.constant {symbol.multiple} : index"
        yield f"{name}_rest = arith.remui {name}, {name}_multiple : index"
        yield f"{name}_none = arith.constant 0 : index"
        yield f"{name}_whole = arith.cmpi eq, {name}_rest, {name}_none : index"
        yield f"{name}_allowed = arith.andi {name}_within, {name}_whole : i1"
    allowed = f"{name}_within" if symbol.multiple == 1 else f"{name}_allowed"
    yield f"cf.assert {allowed}, {quoted(f'a size is not in the range {symbol}')}"
