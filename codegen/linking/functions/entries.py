"""Entries: the functions of a network's modules. A network on one device has one, on several devices one per segment.

A segment is what one device computes without interruption. Segments are a topological cut of the layers: each runs
after those whose values it reads. A value that crosses is a result of one entry and an argument of others; it crosses
in the schema in which it is produced and is converted where it is read, so it goes to a device once, whatever reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import ENTRY, Layer, NetworkValue, TensorType, ValueRef
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.sizes.computed import ComputedSize
from sartor.codegen.ir.sizes.dims import Symbol, symbols_in
from sartor.codegen.ir.variants.routine import Implementation

Implementations = Mapping[str, Implementation]


@dataclass(frozen=True)
class Port:
    """A tensor that an entry takes or gives.

    Attributes:
        name: unique in the network, that of the network's input or output if it is one.
        ref: the value; None for a constant.
        logical: its ONNX type.
        schema: how it is passed.
        constant: name of the weight that it is, if ``ref`` is None.
    """

    name: str
    ref: ValueRef | None
    logical: TensorType
    schema: Schema
    constant: str | None = None

    @property
    def type(self) -> TensorType:
        """Type in memory."""
        return self.schema.physical(self.logical)


@dataclass(frozen=True)
class Length:
    """A size that layers of an entry compute, and others take.

    Attributes:
        symbol: that has the size.
        value: holds it, int64[1].
        node: what computes it, as messages name it.
    """

    symbol: Symbol
    value: Port
    node: str

    def cuts(self, port: Port) -> bool:
        """Whether an argument is as long as its caller likes, and cut to the size."""
        return self.symbol in symbols_in(port.logical.open_dims)


@dataclass(frozen=True)
class Entry:
    """A function over layers of one device.

    Attributes:
        name: of the function.
        device: that computes it.
        layers: in execution order.
        inputs: its arguments.
        outputs: its results.
        length: a size that it computes; None if callers choose all.
    """

    name: str
    device: str
    layers: tuple[Layer, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    length: Length | None = None

    def computing(self, computed: ComputedSize) -> Entry:
        """The same function as it is where it computes a size itself, which callers neither give nor get.

        Raises:
            ValueError: if it has no such size or output.
        """
        ports = (*self.inputs, *self.outputs)
        symbols = symbols_in(dim for port in ports for dim in port.logical.open_dims)
        known = {symbol.name: symbol for symbol in symbols}
        value = next((port for port in self.outputs if port.name == computed.output), None)
        if value is None or computed.name not in known:
            raise ValueError(f"'{self.name}' computes no size '{computed.name}'")
        inputs = tuple(port for port in self.inputs if port.name != computed.unread)
        outputs = tuple(port for port in self.outputs if port is not value)
        length = Length(known[computed.name], value, computed.node)
        return replace(self, inputs=inputs, outputs=outputs, length=length)


def entries_of(graph: LayerGraph, implementations: Implementations, home: str) -> tuple[Entry, ...]:
    """The entries of a network: one if all layers are on one device, or else segments in an order that they can run in.

    Args:
        graph: the network.
        implementations: the chosen one of each layer, by name.
        home: the device of the network's inputs and outputs, if layers are on several.
    """
    first, *others = devices_of(implementations, home)
    if others:
        return _Cut(graph, implementations, home).entries()
    inputs = [
        Port(value.name, ValueRef(None, index), value.type, Schema.plain(value.type, first))
        for index, value in enumerate(graph.inputs)
    ]
    outputs = [_output(output, first) for output in graph.outputs]
    return (Entry(ENTRY, first, graph.layers, tuple(inputs), tuple(outputs)),)


def devices_of(implementations: Implementations, home: str) -> tuple[str, ...]:
    """The devices of the layers, the one of the network's inputs and outputs first if it is among them."""
    devices = {implementation.output.device for implementation in implementations.values()}
    return tuple(sorted(devices, key=lambda device: (device != home, device))) or (home,)


@dataclass(frozen=True)
class _Part:
    """A segment before its arguments and results are known."""

    device: str
    layers: tuple[Layer, ...]

    @property
    def read(self) -> list[ValueRef]:
        return [ref for layer in self.layers for ref in layer.inputs]

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(layer.name for layer in self.layers)

    def computes(self, ref: ValueRef) -> bool:
        return ref.source in self._names


class _Cut:
    def __init__(self, graph: LayerGraph, implementations: Implementations, home: str) -> None:
        self._graph = graph
        self._implementations = implementations
        self._home = home
        self._taken = {value.name for value in (*graph.inputs, *graph.outputs)}
        self._names: dict[ValueRef, str] = {
            ValueRef(None, index): value.name for index, value in enumerate(graph.inputs)
        }

    def entries(self) -> tuple[Entry, ...]:
        parts = [*self._parts()]
        if self._late and parts[-1].device != self._home:
            parts.append(_Part(self._home, ()))
        given = [self._given(parts, index) for index in range(len(parts))]
        return tuple(
            Entry(f"{ENTRY}${index}", part.device, part.layers, self._taken_by(part, outputs), tuple(outputs))
            for index, (part, outputs) in enumerate(zip(parts, given, strict=True))
        )

    def _parts(self) -> Iterator[_Part]:
        """As many layers of one device as can be computed, then those of another; the first begins."""
        waiting, done, device = list(self._graph.layers), set[str](), ""
        while waiting:
            ready: list[Layer] = []
            for layer in waiting:
                if self._device(layer) == (device or self._device(layer)) and self._is_ready(layer, done):
                    device = self._device(layer)
                    ready.append(layer)
                    done.add(layer.name)
            if ready:
                yield _Part(device, tuple(ready))
            waiting = [layer for layer in waiting if layer.name not in done]
            device = next((self._device(layer) for layer in waiting if self._is_ready(layer, done)), "")

    def _device(self, layer: Layer) -> str:
        return self._implementations[layer.name].output.device

    @staticmethod
    def _is_ready(layer: Layer, done: set[str]) -> bool:
        return all(ref.source is None or ref.source in done for ref in layer.inputs)

    @cached_property
    def _late(self) -> list[NetworkValue]:
        """Outputs that the last segment gives, on the home device: constants, copies of inputs under another name, and
        those that are converted after they crossed."""
        return [output for output in self._graph.outputs if not self._is_direct(output) and not self._is_input(output)]

    def _is_direct(self, output: NetworkValue) -> bool:
        """Whether the segment that computes an output gives it as callers get it."""
        if output.source is None or output.source.source is None:
            return False
        produced, wanted = self._produced(output.source), Schema.plain(output.type, self._home)
        return produced.device == self._home or replace(produced, device=self._home) == wanted

    def _is_input(self, output: NetworkValue) -> bool:
        """Whether an output is an input of the same name, which no segment gives."""
        return output.source is not None and self._names.get(output.source) == output.name

    def _produced(self, ref: ValueRef) -> Schema:
        if ref.source is None:
            return Schema.plain(self._graph.inputs[ref.index].type, self._home)
        return self._implementations[ref.source].outputs[ref.index]

    def _given(self, parts: Sequence[_Part], index: int) -> list[Port]:
        """The results of a segment: values that later ones read, then outputs of the network."""
        part, late = parts[index], self._late
        is_last = index == len(parts) - 1
        read = [ref for other in parts[index + 1 :] for ref in other.read if part.computes(ref)]
        read += [value.source for value in late if value.source and part.computes(value.source)]
        crossing = [self._port(ref, part.device) for ref in dict.fromkeys(read)]
        direct = [
            output for output in self._graph.outputs if self._is_direct(output) and part.computes(_source(output))
        ]
        outputs = [_output(value, part.device) for value in direct]
        return [*crossing, *outputs, *(_output(value, self._home) for value in late if is_last)]

    def _taken_by(self, part: _Part, outputs: Sequence[Port]) -> tuple[Port, ...]:
        refs = [*part.read, *(output.ref for output in outputs if output.ref is not None)]
        return tuple(self._port(ref, part.device) for ref in dict.fromkeys(refs) if not part.computes(ref))

    def _port(self, ref: ValueRef, device: str) -> Port:
        """A value as it crosses: in the schema in which it is produced, on the device of the segment."""
        if ref not in self._names:
            name = f"{ref.source}:{ref.index}"
            while name in self._taken:
                name += "'"
            self._names[ref] = name
            self._taken.add(name)
        return Port(self._names[ref], ref, self._graph.type_of(ref), replace(self._produced(ref), device=device))


def _source(output: NetworkValue) -> ValueRef:
    return output.source or ValueRef(None, -1)


def _output(value: NetworkValue, device: str) -> Port:
    """An output as callers get it."""
    return Port(value.name, value.source, value.type, Schema.plain(value.type, device), value.constant)
