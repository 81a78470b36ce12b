"""Writes what an entry of a module computes: calls of the chosen code, layer by layer, and conversions between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np

from sartor.codegen.ir.block_packing import InBlocks, rounded_name
from sartor.codegen.ir.layer import Layer, TensorType, ValueRef
from sartor.codegen.ir.packing import Packing
from sartor.codegen.ir.schema import RANGE, Schema, physical_types
from sartor.codegen.ir.sizes.dims import symbols_in
from sartor.codegen.linking.adapts import AdaptKind
from sartor.codegen.linking.functions.entries import Entry, Length, Port
from sartor.codegen.linking.functions.open_sizes import OpenSizes
from sartor.codegen.linking.pieces import Piece, Stitching
from sartor.codegen.linking.weights.parameters import Make, Parameters
from sartor.codegen.mlir.dispatches import DispatchCode


@dataclass
class _Body:
    """Lines of an entry function while it is written.

    ``unknown`` is what code takes in place of a size that is computed later; it does not read it.
    """

    entry: Entry
    sizes: OpenSizes
    lines: list[str] = field(default_factory=list)
    values: dict[tuple[ValueRef, Schema], str] = field(default_factory=dict)
    loaded: set[str] = field(default_factory=set)
    unknown: str = ""

    def call(self, piece: Piece, arguments: list[tuple[str, TensorType]], results: list[TensorType]) -> list[str]:
        """Call a piece; returns the names of its results."""
        name = f"%v{len(self.lines)}"
        sizes = self.sizes.values(piece.implementation.symbols, self.unknown)
        operands = ", ".join([*(value for value, _ in arguments), *sizes])
        types = ", ".join([*(str(tensor) for _, tensor in arguments), *["index"] * len(sizes)])
        count = f":{len(results)}" if len(results) > 1 else ""
        produced = ", ".join(map(str, results))
        self.lines.append(f"{name}{count} = util.call @{piece.symbol}({operands}) : ({types}) -> ({produced})")
        return [name] if len(results) == 1 else [f"{name}#{index}" for index in range(len(results))]

    def load(self, parameter: str, tensor: TensorType) -> str:
        """Load a parameter once."""
        if parameter not in self.loaded:
            self.loaded.add(parameter)
            self.lines.append(f"%{parameter} = util.global.load immutable @{parameter} : {tensor}")
        return f"%{parameter}"


@dataclass(frozen=True)
class Written:
    """What an entry computes, as the lines of its function.

    Attributes:
        lines: of the body, which know the first argument as ``%t0``, and so on.
        returned: values of the results.
    """

    lines: tuple[str, ...]
    returned: tuple[str, ...]


class Writer:
    """Writes entries layer by layer.

    Args:
        stitching: what to put together.
        parameters: collects the packed weights.
    """

    def __init__(self, stitching: Stitching, parameters: Parameters) -> None:
        self._stitching = stitching
        self._parameters = parameters
        self._named: dict[tuple[str | ValueRef, Packing], str] = {}
        self._used: dict[str, DispatchCode] = {}

    @property
    def pieces(self) -> list[str]:
        """The code that the entries call which were written."""
        return [*self.code.values()]

    @property
    def code(self) -> dict[str, str]:
        """The same by its name."""
        return {symbol: code.text for symbol, code in sorted(self._used.items())}

    def entry(self, entry: Entry) -> Written:
        """Write what an entry computes."""
        self._body = _Body(entry, OpenSizes(entry))
        self._ports = {port.ref: (index, port) for index, port in enumerate(entry.inputs)}
        self._layers = {layer.name: layer for layer in entry.layers}
        first = [] if entry.length is None else self._computing(entry.length)
        for layer in first:
            self._layer(layer)
        if entry.length is not None:
            self._compute(entry.length)
        written = {layer.name for layer in first}
        for layer in entry.layers:
            if layer.name not in written:
                self._layer(layer)
        returned = tuple(self._returned(port) for port in entry.outputs)
        return Written(tuple(self._body.lines), returned)

    def _computing(self, length: Length) -> list[Layer]:
        """The layers that compute a size, in order, before which no others run.

        Raises:
            ValueError: if one of them has values of that size.
        """
        needed = set[str]()
        pending = [length.value.ref]
        while pending:
            ref = pending.pop()
            if ref is not None and ref.source is not None and ref.source not in needed:
                needed.add(ref.source)
                pending += self._layers[ref.source].inputs
        layers = [layer for layer in self._body.entry.layers if layer.name in needed]
        for layer in layers:
            tensors = (*layer.task.inputs, *layer.task.results)
            if length.symbol in symbols_in(dim for tensor in tensors for dim in tensor.open_dims):
                raise ValueError(f"'{layer.name}' has the size {length.symbol}, and computes it")
        self._body.unknown = f"%unknown_{len(layers)}"
        self._body.lines.append(f"{self._body.unknown} = arith.constant {length.symbol.least} : index")
        return layers

    def _compute(self, length: Length) -> None:
        """Read a size that was computed."""
        value = self._returned(length.value)
        self._body.unknown = ""
        cuts = self._stitching.cuts
        self._used |= {piece.symbol: piece.code for piece in cuts.values()}
        symbols = {name: piece.symbol for name, piece in cuts.items()}
        self._body.lines += self._body.sizes.computed(value, length, symbols)

    def _returned(self, output: Port) -> str:
        if output.constant is not None:
            return self._weight(output.constant, Packing(), output.logical)[0]
        if output.ref is None:
            raise ValueError(f"output '{output.name}' has no source")
        return self._value(output.ref, output.schema)

    def _call(self, piece: Piece, arguments: list[tuple[str, TensorType]], results: list[TensorType]) -> list[str]:
        self._used.setdefault(piece.symbol, piece.code)
        return self._body.call(piece, arguments, results)

    def _layer(self, layer: Layer) -> None:
        piece = self._stitching.pieces[layer.name]
        implementation = piece.implementation
        arguments = [
            (self._value(ref, schema), schema.physical(logical))
            for ref, schema, logical in zip(layer.inputs, implementation.inputs, layer.task.inputs, strict=True)
        ]
        arguments += [
            self._weight(name, packing, logical)
            for name, packing, logical in zip(layer.weights, implementation.packings, layer.task.weights, strict=True)
        ]
        own = ValueRef(layer.name, 0)
        arguments += [self._range(own if place is None else layer.inputs[place]) for place in implementation.ranges]
        outputs = implementation.outputs
        results = physical_types(layer.task.results, outputs)
        names = self._call(piece, arguments, results)
        for index, (name, schema) in enumerate(zip(names, outputs, strict=True)):
            self._body.values[ValueRef(layer.name, index), schema] = name

    def _value(self, ref: ValueRef, schema: Schema) -> str:
        """A value of the graph in ``schema``, adapted if it was produced in another; adapted once for all users."""
        known = self._body.values.get((ref, schema))
        if known is not None:
            return known
        logical, produced = self._origin(ref)
        kind = AdaptKind.between(logical, produced, schema)
        if kind is None:
            return f"%t{self._ports[ref][0]}"
        start = self._value(ref, produced)
        piece = self._stitching.adapts[kind]
        types = produced.physical(logical), schema.physical(logical)
        numbers = [self._range(ref) for _ in piece.implementation.ranges]
        (name,) = self._call(piece, [(start, types[0]), *numbers], [types[1]])
        self._body.values[ref, schema] = name
        return name

    def _origin(self, ref: ValueRef) -> tuple[TensorType, Schema]:
        """ONNX type of a value, and the schema it is produced or passed in."""
        if ref in self._ports:
            _, port = self._ports[ref]
            return port.logical, port.schema
        if ref.source is None:
            raise ValueError(f"network input {ref.index} is not passed to '{self._body.entry.name}'")
        logical = self._layers[ref.source].task.results[ref.index]
        return logical, self._stitching.pieces[ref.source].implementation.outputs[ref.index]

    def _range(self, ref: ValueRef) -> tuple[str, TensorType]:
        """The name and type of the argument that holds the range of a quantised value."""
        make = partial(self._stitching.ranges.__getitem__, ref)
        return self._body.load(self._parameter(ref, Packing(), RANGE, make), RANGE), RANGE

    def _weight(self, name: str, packing: Packing, logical: TensorType) -> tuple[str, TensorType]:
        tensor = packing.type_of(logical)
        parameter = self._parameter(name, packing, tensor, partial(self._packed, name, packing))
        return self._body.load(parameter, tensor), tensor

    def _parameter(self, key: str | ValueRef, packing: Packing, tensor: TensorType, make: Make) -> str:
        """The parameter of an array that ``make`` packs, which is added once.

        Ranges have references for keys: layers and weights have any names, so that no text would tell them apart.
        """
        if (key, packing) not in self._named:
            self._named[key, packing] = self._parameters.add(tensor, make)
        return self._named[key, packing]

    def _packed(self, name: str, packing: Packing) -> np.ndarray:
        """A weight as it is packed, from its form that was rounded otherwise than to nearest if there is one."""
        weights = self._stitching.weights
        names = [rounded_name(name, step.encoding.block) for step in packing.steps if isinstance(step, InBlocks)]
        return packing.apply(
            weights[next((name_of_weight for name_of_weight in names if name_of_weight in weights), name)]
        )
