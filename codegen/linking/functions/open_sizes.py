"""The sizes of a call: read from what the caller gives, and passed to the code of all layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sartor.codegen.ir.size_text import SizeText
from sartor.codegen.ir.sizes.dims import Symbol, symbols_in
from sartor.codegen.linking.functions.cut_inputs import is_cut, open_axes
from sartor.codegen.linking.functions.entries import Entry, Length, Port
from sartor.codegen.linking.functions.quoted import quoted


class OpenSizes(SizeText):
    """The sizes in an entry function, whose arguments are ``%in0``, and so on.

    Args:
        entry: what it takes and gives.
    """

    def __init__(self, entry: Entry) -> None:
        ports = (*entry.inputs, *entry.outputs)
        used = symbols_in(open_dim for port in ports for open_dim in port.logical.open_dims)
        computed = None if entry.length is None else entry.length.symbol
        self._symbols_used = used if computed is None else tuple(dict.fromkeys((*used, computed)))
        self._inner = computed
        super().__init__({symbol: f"%symbol{index}" for index, symbol in enumerate(self._symbols_used)})
        self._entry = entry

    def values(self, symbols: Sequence[Symbol], unknown: str = "") -> list[str]:
        """MLIR's names of the values of symbols; ``unknown`` in place of one that is not computed yet."""
        return [unknown if unknown and symbol == self._inner else self._symbols[symbol] for symbol in symbols]

    def read(self, besides: Symbol | None = None, *, is_checked: bool = True) -> Iterator[str]:
        """Lines that read the symbols from the shapes of the arguments, each from the first that has it.

        Args:
            besides: a symbol that is known already. One that the function computes is read by ``computed``.
            is_checked: whether calls end whose sizes are out of range.
        """
        for symbol in self._symbols_used:
            if symbol in (besides, self._inner):
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

    def computed(self, value: str, length: Length, cuts: Mapping[str, str]) -> Iterator[str]:
        """Lines that read the size that the function computes from a tensor, once that is there, and cut inputs.

        Args:
            value: name of the tensor.
            length: the size.
            cuts: the functions that cut inputs, by their names.
        """
        name = self._symbols[length.symbol]
        yield f"{name}_place = arith.constant 0 : index"
        yield f"{name}_number = flow.tensor.load {value}[{name}_place] : {length.value.type}"
        yield f"{name} = arith.index_cast {name}_number : i64 to index"
        yield from _within(name, length.symbol, f"the size that {length.node} gives")
        for index, port in enumerate(self._entry.inputs):
            if length.cuts(port):
                yield from self._cut(index, port, length, cuts[port.name])

    def given(self, index: int, port: Port) -> Iterator[str]:
        """Lines that take ``%long`` with the index, an input of which a part is read."""
        names = {axis: f"%given{index}_{axis}" for axis in open_axes(port)}
        for axis, name in names.items():
            yield f"{name} = hal.buffer_view.dim<%in{index} : !hal.buffer_view>[{axis}] : index"
        yield (
            f"%long{index} = hal.tensor.import wait(%wait) => %in{index} {quoted(port.name)} : !hal.buffer_view -> "
            f"{port.type}{{{', '.join(names.values())}}}"
        )

    def _cut(self, index: int, port: Port, length: Length, code: str) -> Iterator[str]:
        """Lines that define ``%t`` with the index, as much of an input as the size says, by a function."""
        name, axes = self._symbols[length.symbol], [*open_axes(port)]
        given = {axis: f"%given{index}_{axis}" for axis in axes}
        for axis in axes:
            if is_cut(port, axis, length):
                yield f"{given[axis]}_holds = arith.cmpi uge, {given[axis]}, {name} : index"
                short = f"'{port.name}' is shorter along axis {axis} than the size that {length.node} gives"
                yield f"cf.assert {given[axis]}_holds, {quoted(short)}"
        types = ", ".join([str(port.type), *["index"] * (len(axes) + 1)])
        operands = ", ".join([f"%long{index}", *given.values(), name])
        yield f"%t{index} = util.call @{code}({operands}) : ({types}) -> {port.type}"

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


def _within(name: str, symbol: Symbol, what: str = "a size") -> Iterator[str]:
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
    yield f"cf.assert {allowed}, {quoted(f'{what} is not in the range {symbol}')}"
