"""Functions of a module that keeps caches which grow: one that computes, and those that reset, give and replace them.

A cache has one buffer with room for the most positions, which the first call that needs it allocates; the system gives
it memory where it is written. Positions are along the first axis, so those that live are its beginning. A call writes
its rows behind them, where they are computed, before layers read the cache; nothing else of it is written, nothing is
copied, and what lies behind the live part is never read. The number of positions is a variable of the module. Other
sizes that are known only when it runs, as the length of what an encoder gave, are those of inputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.size_text import SizeText
from sartor.codegen.ir.sizes.dims import Symbol, symbols_in
from sartor.codegen.ir.states import BEFORE, CachePair
from sartor.codegen.linking.functions.borrowed_inputs import HERE, as_own
from sartor.codegen.linking.functions.entries import Entry
from sartor.codegen.linking.functions.entry_functions import (
    await_fence,
    computed_apart,
    new_fence,
    typed_views,
    views,
)
from sartor.codegen.linking.functions.open_sizes import OpenSizes
from sartor.codegen.linking.functions.quoted import quoted
from sartor.codegen.linking.functions.stateful import (
    ALLOCATOR,
    APART,
    BEGUN,
    DEVICE,
    RESTORE_SUFFIX,
    START,
    STATEFUL_SUFFIX,
    STATES_SUFFIX,
    allocated,
    beginning,
)

FULL = "the caches are full"
"""What a call fails with that has more positions than caches have room for."""
DISAGREES = "is not the number of positions"
"""What a call fails with where an input has another size than the caches with the call's own positions."""
SHORTER = "the caches hold fewer positions"
"""What truncating fails with where there are not as many positions."""
TRUNCATE_SUFFIX = "$truncate"
LAST = "%last"
"""The argument, of type i64, that tells behind which of its tokens a call gives outputs; later ones are forgotten."""
_NO_TOKEN = "the last token is none of the call's"
_BUFFER = "!hal.buffer"
_LENGTH, _COUNT = "@caches$length", "tensor<1xi64>"
_VALUE = re.compile(r"%[\w$]+")
# Code assumes that what it writes is aligned so.
_ALIGNMENT = 64


def growing_functions(
    entry: Entry, caches: Sequence[CachePair], lines: Sequence[str], returned: Sequence[str]
) -> list[str]:
    """All that a module with caches has beside its other entries, globals included.

    Args:
        entry: what the network takes and gives.
        caches: its pairs of inputs and outputs.
        lines: what is computed; they know the first input as ``%t0``, and so on.
        returned: values of the outputs.

    Raises:
        ValueError: if something else of a cache than the number of positions is known only when it runs.
    """
    storage = _Storage(entry, caches)
    return [
        *storage.globals(),
        storage.start(),
        *beginning(entry.name, storage.allocate()),
        storage.give(),
        storage.replace(),
        _Step(storage, lines, returned).function(),
    ]


def growing_step(
    entry: Entry,
    caches: Sequence[CachePair],
    lines: Sequence[str],
    returned: Sequence[str],
    *,
    has_last: bool = False,
) -> str:
    """A further function that appends to the caches of ``growing_functions``, and takes another number of positions.

    Other arguments and errors are those of ``growing_functions``.

    Args:
        entry, caches, lines, returned: as there.
        has_last: whether the function takes ``LAST`` behind its inputs, which ``lines`` read.
    """
    return _Step(_Storage(entry, caches), lines, returned, has_last=has_last).function()


def truncating_function(entry: Entry) -> str:
    """The function that takes a number of positions, of type i64, and forgets those behind them."""
    lines = [
        f"%held = util.global.load {_LENGTH} : i64",
        "%fits = arith.cmpi ule, %length, %held : i64",
        f"cf.assert %fits, {quoted(SHORTER)}",
        f"util.global.store %length, {_LENGTH} : i64",
        "util.return",
    ]
    heading = f"public @{entry.name}{TRUNCATE_SUFFIX}(%length: i64)"
    return "\n".join([f"util.func {heading} attributes {{{APART}, iree.abi.stub}} {{", *lines, "}"])


class _Storage:
    """The buffers of the caches, as globals, and the functions that change them apart from the network."""

    def __init__(self, entry: Entry, caches: Sequence[CachePair]) -> None:
        self.entry, self.caches = entry, caches
        self.names = [quoted(entry.inputs[cache.input].name) for cache in caches]
        self.types = [entry.inputs[cache.input].type for cache in caches]
        self.rows = [entry.outputs[cache.output].type for cache in caches]
        symbols = symbols_in(dim for cache in caches for dim in entry.inputs[cache.input].logical.open_dims)
        if len(symbols) != 1 or any(row.open_dims for row in self.rows):
            raise ValueError("more of a cache than the number of positions is known only when it runs")
        self.symbol: Symbol = symbols[0]

    @property
    def new(self) -> int:
        """Positions that a call adds."""
        return self.rows[0].shape[0]

    def globals(self) -> Iterator[str]:
        yield f"util.global private mutable {_LENGTH} = 0 : i64"
        for number in range(len(self.caches)):
            yield f"util.global private mutable {_buffer(number)} : {_BUFFER}"

    def allocate(self) -> list[str]:
        """Lines that allocate the buffers."""
        lines = [*DEVICE, *ALLOCATOR]
        for number, tensor in enumerate(self.types):
            lines += allocated(f"%buffer{number}", tensor)
            lines.append(f"util.global.store %buffer{number}, {_buffer(number)} : {_BUFFER}")
        return lines

    @staticmethod
    def start() -> str:
        """The function that lets all caches begin again: nothing of them lives."""
        lines = ["%none = arith.constant 0 : i64", f"util.global.store %none, {_LENGTH} : i64", "util.return"]
        return "\n".join([f"util.func private @{START}() attributes {{{APART}}} {{", *lines, "}"])

    def give(self) -> str:
        """The function that gives the number of positions, and a view of the whole buffer of each cache."""
        count = len(self.caches)
        lines = [
            *BEGUN,
            *new_fence("%signal"),
            f"%length = util.global.load {_LENGTH} : i64",
            f"%filled = flow.tensor.splat %length : {_COUNT}",
            f"%done = hal.tensor.barrier join(%filled : {_COUNT}) => %signal : !hal.fence",
            f'%view = hal.tensor.export %done "length" : {_COUNT} -> !hal.buffer_view',
        ]
        for number, (name, tensor) in enumerate(zip(self.names, self.types, strict=True)):
            whole = TensorType(tensor.shape, tensor.dtype)
            lines += [
                f"%buffer{number} = util.global.load {_buffer(number)} : {_BUFFER}",
                f"%held{number} = hal.tensor.import %buffer{number} {name} : {_BUFFER} -> {whole}",
                f"%view{number} = hal.tensor.export %held{number} {name} : {whole} -> !hal.buffer_view",
            ]
        given = ", ".join(["%view", *(f"%view{number}" for number in range(count))])
        heading = f"public @{self.entry.name}{STATES_SUFFIX}() -> ({views(count + 1)})"
        lines += [*await_fence("%signal"), f"util.return {given} : {views(count + 1)}"]
        return "\n".join([f"util.func {heading} attributes {{iree.abi.stub}} {{", *lines, "}"])

    def replace(self) -> str:
        """The function that takes a buffer view of the live positions of each cache, and copies what they hold."""
        taken = [f"%in{number}" for number in range(len(self.caches))]
        sizes = SizeText({self.symbol: "%rows"})
        lines = ["%rows = hal.buffer_view.dim<%in0 : !hal.buffer_view>[0] : index", *self.check_room("%rows")]
        imports, kinds = list[str](), [sizes.typed(kind) for kind in self.types]
        for number, (view, name, kind) in enumerate(zip(taken, self.names, kinds, strict=True)):
            imports += [
                f"%given{number} = hal.tensor.import wait(%wait) => {view} {name} : !hal.buffer_view -> {kind}",
                f"%buffer{number} = util.global.load {_buffer(number)} : {_BUFFER}",
                f"%filled{number} = hal.tensor.alias wait(%wait) => %given{number} : {kind} to %buffer{number} : "
                f"{_BUFFER}",
            ]
        filled = [f"%filled{number}" for number in range(len(taken))]
        heading = f"public @{self.entry.name}{RESTORE_SUFFIX}({typed_views(taken)})"
        return "\n".join(
            [
                f"util.func {heading} attributes {{{APART}, iree.abi.stub}} {{",
                *BEGUN,
                "%wait = util.null : !hal.fence",
                *new_fence("%signal"),
                *lines,
                *sizes.lines,
                *imports,
                _barrier("%done", filled, self.types, "%signal"),
                *await_fence("%signal"),
                *_set_length("%rows"),
                "util.return",
                "}",
            ]
        )

    def check_room(self, rows: str) -> Iterator[str]:
        """Lines that end a call with more positions than there is room for."""
        yield f"%room = arith.constant {self.symbol.most} : index"
        yield f"%fits = arith.cmpi ule, {rows}, %room : index"
        yield f"cf.assert %fits, {quoted(FULL)}"


class _Step:
    """The function that computes: it takes the inputs and gives the outputs that belong to no cache."""

    def __init__(
        self, storage: _Storage, lines: Sequence[str], returned: Sequence[str], *, has_last: bool = False
    ) -> None:
        self._storage, self._returned = storage, returned
        self._numbers = [LAST] if has_last else []
        entry = storage.entry
        self._sizes = OpenSizes(entry)
        self._rows = self._sizes.values([storage.symbol])[0]
        self._read = {f"%t{cache.input}": number for number, cache in enumerate(storage.caches)}
        cached = {cache.input for cache in storage.caches}
        self._counted = [index for index, port in enumerate(entry.inputs) if port.name == BEFORE]
        own = {*cached, *self._counted}
        self._taken = [index for index in range(len(entry.inputs)) if index not in own]
        written = {cache.output for cache in storage.caches}
        self._given = [index for index in range(len(entry.outputs)) if index not in written]
        self._lines = list(lines)

    def function(self) -> str:
        """The function that gives buffer views of new memory; it waits."""
        storage, given = self._storage, self._given
        outputs = storage.entry.outputs
        types = [outputs[index].type for index in given]
        kinds = [self._sizes.typed(kind) for kind in types]
        symbol = f"{storage.entry.name}{STATEFUL_SUFFIX}"
        taken = [f"%in{index}" for index in self._taken]
        imports, body = [*self._imports()], [*self._body()]
        # Rows are written also where no layer reads the cache behind them.
        caches = [*self._read]
        ends = [*(self._returned[index] for index in given), *caches]
        held = [storage.types[self._read[cache]] for cache in caches]
        exports = [
            f"%o{index} = hal.tensor.export %b#{number} {quoted(outputs[index].name)} : {kind} -> !hal.buffer_view"
            for number, (index, kind) in enumerate(zip(given, kinds, strict=True))
        ]
        computed = [
            "%wait = util.null : !hal.fence",
            "%begin = arith.constant 0 : index",
            *self._positions(),
            *self._sizes.read(storage.symbol, is_checked=False),
            *self._sizes.lines,
            *imports,
            *body,
            _barrier("%b", ends, [*types, *held], "%signal"),
            *exports,
        ]
        outputs_given = [f"%o{index}" for index in given]
        function, called, results = computed_apart(symbol, taken, outputs_given, computed, numbers=self._numbers)
        arguments = ", ".join([typed_views(taken), *(f"{number}: i64" for number in self._numbers)])
        return "\n".join(
            [
                function,
                f"util.func public @{symbol}({arguments}) -> ({views(len(given))}) attributes {{iree.abi.stub}} {{",
                *BEGUN,
                *self._positions(),
                *self._checks(),
                *called,
                *(self._keep_until_last() if self._numbers else _set_length(self._rows)),
                f"util.return {', '.join(results)} : {views(len(given))}",
                "}",
            ]
        )

    def _positions(self) -> Iterator[str]:
        """Lines with the number of positions before the call and with its own."""
        yield f"%before_i64 = util.global.load {_LENGTH} : i64"
        yield "%before = arith.index_cast %before_i64 : i64 to index"
        yield f"%new = arith.constant {self._storage.new} : index"
        yield f"{self._rows} = arith.addi %before, %new : index"

    def _checks(self) -> Iterator[str]:
        """Lines that end a call for whose positions there is no room, or about which an input does not agree."""
        storage = self._storage
        yield from storage.check_room(self._rows)
        for number in self._numbers:
            yield f"%part = arith.constant {storage.new} : i64"
            yield f"%within = arith.cmpi ult, {number}, %part : i64"
            yield f"cf.assert %within, {quoted(_NO_TOKEN)}"
        yield from self._sizes.read(storage.symbol)
        for index in self._taken:
            for axis, dim in enumerate(storage.entry.inputs[index].logical.dims or ()):
                if not isinstance(dim, int) and dim.symbol is not None:
                    size = f"%size_{index}_{axis}"
                    yield f"{size} = hal.buffer_view.dim<%in{index} : !hal.buffer_view>[{axis}] : index"
                    (known,) = self._sizes.values([dim.symbol])
                    yield f"{size}_fits = arith.cmpi eq, {size}, {known} : index"
                    what = DISAGREES if dim.symbol == storage.symbol else f"is not {dim.symbol.name}"
                    said = f"the size of '{storage.entry.inputs[index].name}' {what}"
                    yield f"cf.assert {size}_fits, {quoted(said)}"

    @staticmethod
    def _keep_until_last() -> list[str]:
        """Lines that let the positions up to the last token live."""
        return [
            "%unit = arith.constant 1 : i64",
            f"%more = arith.addi {LAST}, %unit : i64",
            "%now = arith.addi %before_i64, %more : i64",
            f"util.global.store %now, {_LENGTH} : i64",
        ]

    def _imports(self) -> Iterator[str]:
        for index in self._taken:
            port = self._storage.entry.inputs[index]
            kind = self._sizes.typed(port.type)
            source = f"%in{index} {quoted(port.name)} : !hal.buffer_view -> {kind}"
            yield f"%borrowed{index} = hal.tensor.import wait(%wait) => {source}"
            yield as_own(f"%t{index}", f"%borrowed{index}", kind)
        for index in self._counted:
            yield f"%t{index} = flow.tensor.splat %before_i64 : {_COUNT}"

    def _body(self) -> Iterator[str]:
        """What is computed, such that rows are in a cache before it is read."""
        made = {f"%t{index}" for index in (*self._taken, *self._counted)}
        by_value = {_VALUE.match(line)[0]: line for line in self._lines}  # type: ignore[index]

        def make(value: str) -> Iterator[str]:
            if value in made:
                return
            made.add(value)
            if value in self._read:
                number = self._read[value]
                yield from make(self._new_rows(number))
                yield from self._append(number, value)
            elif value in by_value:
                for read in _VALUE.findall(by_value[value].partition(" = ")[2]):
                    yield from make(read)
                yield by_value[value]

        for value in (*by_value, *self._read):
            yield from make(value)

    def _new_rows(self, number: int) -> str:
        return self._returned[self._storage.caches[number].output].partition("#")[0]

    def _append(self, number: int, cache: str) -> Iterator[str]:
        """Lines that have a call's rows written behind those before, and define the cache with them."""
        storage, own = self._storage, f"{number}"
        value, rows = self._returned[storage.caches[number].output], storage.rows[number]
        row_bytes = rows.bytes // rows.shape[0]
        yield f"%buffer{own} = util.global.load {_buffer(number)} : {_BUFFER}"
        if row_bytes % _ALIGNMENT:
            yield f"%rows{own} = flow.tensor.barrier {value} : {rows} on #hal.device.affinity<{HERE}>"
            value = f"%rows{own}"
        kind = self._sizes.typed(storage.types[number])
        places = ", ".join(["%before", *["%begin"] * (len(rows.shape) - 1)])
        yield f"%held{own} = hal.tensor.import %buffer{own} {storage.names[number]} : {_BUFFER} -> {kind}"
        yield f"{cache} = flow.tensor.update {value}, %held{own}[{places}] : {rows} -> %held{own} as {kind}"


def _buffer(number: int) -> str:
    return f"@cache${number}"


def _barrier(name: str, values: Sequence[str], types: Sequence[TensorType], fence: str) -> str:
    many = f":{len(values)}" if len(values) > 1 else ""
    joined = f"{', '.join(values)} : {', '.join(map(str, types))}"
    return f"{name}{many} = hal.tensor.barrier join({joined}) => {fence} : !hal.fence"


def _set_length(rows: str) -> list[str]:
    return [f"%now = arith.index_cast {rows} : index to i64", f"util.global.store %now, {_LENGTH} : i64"]
