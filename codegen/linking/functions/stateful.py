"""Functions of a module that keeps states: one that computes, and those that reset, give and replace its states.

Each state has two buffers, which the first call that needs them allocates in a context of the module: what callers load
to pass states themselves takes no memory for them. A call reads one and has the layers write the
other, then both change places: nothing is copied, also where layers read the old state after they wrote the new one.
A state of which a layer writes a part in its place, and which nothing else reads before, has one buffer.
Kernels and weights are those of the entry to which the caller passes states. What is given back has memory of its own,
as a later call overwrites a state that an output equals.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.states import StatePair
from sartor.codegen.linking.functions.borrowed_inputs import as_own
from sartor.codegen.linking.functions.entries import Entry
from sartor.codegen.linking.functions.entry_functions import (
    BOUND_SUFFIX,
    await_fence,
    computed_apart,
    new_fence,
    typed_views,
    views,
)
from sartor.codegen.linking.functions.quoted import quoted
from sartor.codegen.linking.functions.written_over import is_written_over

STATEFUL_SUFFIX, RESET_SUFFIX, STATES_SUFFIX, RESTORE_SUFFIX = "$stateful", "$reset", "$states", "$restore"
_BUFFER = "!hal.buffer"
APART = "inlining_policy = #util.inline.never"
"""The attribute of a function that stays one."""
START, _BEGIN, _HAS_BEGUN = "state$start", "state$begin", "@state$has_begun"
BEGUN = (f"util.call @{_BEGIN}() : () -> ()",)
"""Lines after which states have begun."""
# A caller may read and write states through the host's pointers where the device has such memory.
_USAGE = "|".join(
    [
        *("TransferSource", "TransferTarget", "Transfer"),
        *("DispatchStorageRead", "DispatchStorageWrite", "DispatchStorage"),
        *("MappingScoped", "MappingPersistent", "MappingOptional", "MappingAccessRandom", "Mapping"),
    ]
)
DEVICE = ("%first = arith.constant 0 : index", "%device = hal.devices.get %first : !hal.device")
# What ``allocated`` needs.
ALLOCATOR = (
    "%allocator = hal.device.allocator<%device : !hal.device> : !hal.allocator",
    "%anywhere = arith.constant -1 : i64",
    '%memory = hal.memory_type<"DeviceVisible|DeviceLocal"> : i32',
    f'%usage = hal.buffer_usage<"{_USAGE}"> : i32',
)


def stateful_functions(
    entry: Entry,
    states: Sequence[StatePair],
    lines: Sequence[str],
    returned: Sequence[str],
    code: Mapping[str, str],
) -> list[str]:
    """All that a module with states has beside its other entries, globals included.

    Args:
        entry: what the network takes and gives, on one device and with static sizes.
        states: its pairs of inputs and outputs.
        lines: what is computed; they know the first input as ``%t0``, and so on.
        returned: values of the outputs.
        code: that ``lines`` call, by name.
    """
    kept = {
        number
        for number, state in enumerate(states)
        if is_written_over(f"%t{state.input}", returned[state.output], lines, returned, code)
    }
    storage = _Storage(entry, states, kept)
    step = _Step(storage, lines, returned)
    return [
        *storage.globals(),
        storage.reset(),
        *beginning(entry.name, storage.allocate()),
        storage.give(),
        storage.replace(),
        step.function(is_bound=False),
        step.function(is_bound=True),
    ]


class _Storage:
    """The buffers of the states, as globals, and the functions that change them apart from the network.

    Attributes:
        in_place: numbers of the states that are written where they lie.
    """

    def __init__(self, entry: Entry, states: Sequence[StatePair], in_place: Collection[int]) -> None:
        self.entry, self.states, self.in_place = entry, states, in_place
        self.types = [entry.inputs[state.input].type for state in states]
        self.names = [quoted(entry.inputs[state.input].name) for state in states]

    def globals(self) -> Iterator[str]:
        """For each state the buffer that the next call reads, and the one that it writes if that is another."""
        for number in range(len(self.states)):
            for name in self._own(number):
                yield f"util.global private mutable {name} : {_BUFFER}"

    def allocate(self) -> list[str]:
        """Lines that allocate the buffers."""
        lines = [*DEVICE, *ALLOCATOR]
        for number, tensor in enumerate(self.types):
            for place, name in enumerate(self._own(number)):
                own = f"%buffer{number}_{place}"
                lines += [*allocated(own, tensor), f"util.global.store {own}, {name} : {_BUFFER}"]
        return lines

    def _own(self, number: int) -> tuple[str, ...]:
        return _buffers(number)[:1] if number in self.in_place else _buffers(number)

    def reset(self) -> str:
        """The function that lets all states begin again, without a look at whether they have begun."""
        lines = list[str]()
        for number, (state, tensor) in enumerate(zip(self.states, self.types, strict=True)):
            lines += start_lines(f"%start{number}", state.start, tensor)
        return self._filling(
            f"private @{START}", [], lines, [f"%start{number}" for number in range(len(self.states))], []
        )

    def replace(self) -> str:
        """The function that takes a buffer view for each state, and copies what they hold."""
        taken = [f"%in{number}" for number in range(len(self.states))]
        lines = [
            f"%given{number} = hal.tensor.import wait(%wait) => {view} {name} : !hal.buffer_view -> {tensor}"
            for number, (view, name, tensor) in enumerate(zip(taken, self.names, self.types, strict=True))
        ]
        heading = f"public @{self.entry.name}{RESTORE_SUFFIX}"
        return self._filling(heading, taken, lines, [f"%given{number}" for number in range(len(taken))], BEGUN)

    def _filling(
        self, heading: str, taken: Sequence[str], lines: Sequence[str], values: Sequence[str], first: Sequence[str]
    ) -> str:
        """A function that writes values to the buffers that the next call reads."""
        aliases = [
            line
            for number, (value, tensor) in enumerate(zip(values, self.types, strict=True))
            for line in (
                f"%buffer{number} = util.global.load {_buffers(number)[0]} : {_BUFFER}",
                alias(f"%filled{number}", value, tensor, f"%buffer{number}"),
            )
        ]
        stub = ", iree.abi.stub" if heading.startswith("public") else ""
        filled = [f"%filled{number}" for number in range(len(values))]
        return "\n".join(
            [
                f"util.func {heading}({typed_views(taken)}) attributes {{{APART}{stub}}} {{",
                *first,
                "%wait = util.null : !hal.fence",
                *new_fence("%signal"),
                *lines,
                *aliases,
                barrier("%done", filled, self.types),
                *await_fence("%signal"),
                "util.return",
                "}",
            ]
        )

    def give(self) -> str:
        """The function that gives a view of each state: of the memory itself, which the call after the next writes."""
        lines = list[str]()
        for number, (name, tensor) in enumerate(zip(self.names, self.types, strict=True)):
            lines += [
                f"%buffer{number} = util.global.load {_buffers(number)[0]} : {_BUFFER}",
                f"%held{number} = hal.tensor.import %buffer{number} {name} : {_BUFFER} -> {tensor}",
                f"%view{number} = hal.tensor.export %held{number} {name} : {tensor} -> !hal.buffer_view",
            ]
        given, count = ", ".join(f"%view{number}" for number in range(len(self.types))), len(self.types)
        heading = f"public @{self.entry.name}{STATES_SUFFIX}() -> ({views(count)})"
        return "\n".join(
            [
                f"util.func {heading} attributes {{iree.abi.stub}} {{",
                *BEGUN,
                *lines,
                f"util.return {given} : {views(count)}",
                "}",
            ]
        )


class _Step:
    """The functions that compute: they take the inputs and give the outputs that are no states."""

    def __init__(self, storage: _Storage, lines: Sequence[str], returned: Sequence[str]) -> None:
        self._storage, self._lines, self._returned = storage, list(lines), list(returned)
        self._read = {state.input: number for number, state in enumerate(storage.states)}
        self._written = {state.output: number for number, state in enumerate(storage.states)}
        entry = storage.entry
        self._taken = [index for index in range(len(entry.inputs)) if index not in self._read]
        self._given = [index for index in range(len(entry.outputs)) if index not in self._written]
        self._over = {storage.states[number].output for number in storage.in_place}
        self._early = {index for index in self._written if index not in self._over and self._place_early(index)}

    def function(self, *, is_bound: bool) -> str:
        """The function that gives buffer views of new memory or, if it is bound, writes into given ones; it waits."""
        outputs = self._storage.entry.outputs
        arguments = [f"%in{index}" for index in self._taken]
        targets = [f"%to{index}" for index in self._given] if is_bound else []
        results = [] if is_bound else [f"%o{index}" for index in self._given]
        values = [self._returned[index] if index in self._over else f"%a{index}" for index in range(len(outputs))]
        types = [output.type for output in outputs]
        name = f"{self._storage.entry.name}{STATEFUL_SUFFIX}{BOUND_SUFFIX if is_bound else ''}"
        many = len(outputs) > 1
        exports = [
            f"%o{index} = hal.tensor.export %b{f'#{index}' if many else ''} {quoted(outputs[index].name)} : "
            f"{types[index]} -> !hal.buffer_view"
            for index in self._given
            if not is_bound
        ]
        computed = [
            "%wait = util.null : !hal.fence",
            *([] if is_bound else (*DEVICE, *ALLOCATOR)),
            *self._imports(),
            *self._lines,
            *(line for index in range(len(outputs)) for line in self._placed(index, is_bound=is_bound)),
            barrier("%b", values, types),
            *exports,
        ]
        function, called, given = computed_apart(name, [*arguments, *targets], results, computed)
        heading = f"public @{name}({typed_views([*arguments, *targets])}) -> ({views(len(results))})"
        return "\n".join(
            [
                function,
                f"util.func {heading} attributes {{iree.abi.stub}} {{",
                *BEGUN,
                *called,
                *self._exchange(),
                f"util.return {', '.join(given)} : {views(len(given))}" if given else "util.return",
                "}",
            ]
        )

    def _imports(self) -> Iterator[str]:
        for index, port in enumerate(self._storage.entry.inputs):
            number = self._read.get(index)
            if number is None:
                source, kind = f"%in{index}", "!hal.buffer_view"
            else:
                source, kind = f"%read{number}", _BUFFER
                yield from _loaded(number) if number not in self._storage.in_place else [_loaded_alone(number)]
            named = f"{source} {quoted(port.name)} : {kind} -> {port.type}"
            if number in self._storage.in_place:
                # What is no value of its own is written over.
                yield f"%t{index} = hal.tensor.import wait(%wait) => {named}"
                continue
            yield f"%borrowed{index} = hal.tensor.import wait(%wait) => {named}"
            yield as_own(f"%t{index}", f"%borrowed{index}", port.type)

    def _place_early(self, index: int) -> bool:
        """Have a state computed in its buffer, from where other layers read it: computed elsewhere, it would be copied.

        Returns:
            Whether a line computes it; inputs and constants are copied at the end.
        """
        value, name = self._returned[index], f"%a{index}"
        whole = value.partition("#")[0]
        place = next((at for at, line in enumerate(self._lines) if re.match(rf"{whole}(:\d+)? = ", line)), None)
        if place is None:
            return False
        used = re.compile(rf"{re.escape(value)}(?![\w$.#])")
        tensor, later = self._storage.entry.outputs[index].type, self._lines[place + 1 :]
        line = alias(name, value, tensor, f"%written{self._written[index]}")
        self._lines = [*self._lines[: place + 1], line, *(used.sub(name, later_line) for later_line in later)]
        self._returned = [name if returned == value else returned for returned in self._returned]
        return True

    def _placed(self, index: int, *, is_bound: bool) -> Iterator[str]:
        """Lines that have an output written where it is wanted: a state to its buffer, others to given or new ones."""
        number, tensor = self._written.get(index), self._storage.entry.outputs[index].type
        if index in self._early or index in self._over:
            return
        if number is not None:
            yield alias(f"%a{index}", self._returned[index], tensor, f"%written{number}")
            return
        if is_bound:
            yield f"%memory{index} = hal.buffer_view.buffer<%to{index} : !hal.buffer_view> : {_BUFFER}"
        else:
            yield from allocated(f"%memory{index}", tensor)
        yield alias(f"%a{index}", self._returned[index], tensor, f"%memory{index}")

    def _exchange(self) -> Iterator[str]:
        """Lines after which the next call reads what this one wrote."""
        for number in range(len(self._storage.states)):
            if number in self._storage.in_place:
                continue
            read, written = _buffers(number)
            yield from _loaded(number)
            yield f"util.global.store %written{number}, {read} : {_BUFFER}"
            yield f"util.global.store %read{number}, {written} : {_BUFFER}"


def _loaded(number: int) -> Iterator[str]:
    """Lines that load the buffers of a state."""
    _, written = _buffers(number)
    yield _loaded_alone(number)
    yield f"%written{number} = util.global.load {written} : {_BUFFER}"


def _loaded_alone(number: int) -> str:
    """A line that loads the buffer that a call reads."""
    return f"%read{number} = util.global.load {_buffers(number)[0]} : {_BUFFER}"


def beginning(entry: str, allocating: Sequence[str]) -> list[str]:
    """What lets states begin with the first call that needs them, and the function that lets them begin again.

    An initialiser cannot: IREE initialises what a function needs to fill memory behind all that it is given.

    Args:
        entry: name of the entry without states.
        allocating: lines that allocate memory for the states.
    """
    kind = f"attributes {{{APART}}}"
    return [
        f"util.global private mutable {_HAS_BEGUN} = 0 : i32",
        "\n".join(
            [
                f"util.func private @{_BEGIN}() {kind} {{",
                f"%has_begun = util.global.load {_HAS_BEGUN} : i32",
                "%no = arith.constant 0 : i32",
                "%is_first = arith.cmpi eq, %has_begun, %no : i32",
                "cf.cond_br %is_first, ^first, ^later",
                "^first:",
                *allocating,
                f"util.call @{START}() : () -> ()",
                "%yes = arith.constant 1 : i32",
                f"util.global.store %yes, {_HAS_BEGUN} : i32",
                "cf.br ^later",
                "^later:",
                "util.return",
                "}",
            ]
        ),
        "\n".join(
            [
                f"util.func public @{entry}{RESET_SUFFIX}() attributes {{iree.abi.stub}} {{",
                *BEGUN,
                f"util.call @{START}() : () -> ()",
                "util.return",
                "}",
            ]
        ),
    ]


def _buffers(number: int) -> tuple[str, str]:
    """The globals of a state: the buffer that the next call reads, and the one that it writes."""
    return f"@state${number}", f"@state${number}$next"


def allocated(name: str, tensor: TensorType) -> Iterator[str]:
    """Lines that define a new buffer for a tensor; one without elements has a byte."""
    yield f"{name}_size = arith.constant {max(1, tensor.bytes)} : index"
    yield (
        f"{name} = hal.allocator.allocate<%allocator : !hal.allocator> affinity(%anywhere) type(%memory) "
        f"usage(%usage) : {_BUFFER}{{{name}_size}}"
    )


def alias(name: str, value: str, tensor: TensorType, buffer: str) -> str:
    """A line that has a value computed into a buffer."""
    return f"{name} = hal.tensor.alias wait(%wait) => {value} : {tensor} to {buffer} : {_BUFFER}"


def barrier(name: str, values: Sequence[str], types: Sequence[TensorType]) -> str:
    """A line that signals once values are computed."""
    many = f":{len(values)}" if len(values) > 1 else ""
    joined = f"{', '.join(values)} : {', '.join(map(str, types))}"
    return f"{name}{many} = hal.tensor.barrier join({joined}) => %signal : !hal.fence"


def start_lines(name: str, start: np.ndarray | None, tensor: TensorType) -> list[str]:
    """Lines that define what a state begins with."""
    if start is None:
        zero = "0" if tensor.dtype.startswith("i") else "0.0"
        return [
            f"{name}_zero = arith.constant {zero} : {tensor.dtype}",
            f"{name} = flow.tensor.splat {name}_zero : {tensor}",
        ]
    return [f"{name} = flow.tensor.constant {_dense(start)} : {tensor}"]


def _dense(array: np.ndarray) -> str:
    """An array as MLIR's attribute: truth values one by one, and others as their bytes."""
    if array.dtype == np.bool_:
        return f"dense<{str(array.tolist()).lower()}>"
    return f'dense<"0x{np.ascontiguousarray(array).tobytes().hex().upper()}">'
