"""Put the chosen code of all layers together: one module, adapts on the edges, packed weights inside.

Layers are already dispatches, so IREE only schedules, plans memory and generates machine code. The same choices in the
same order give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sartor.codegen.ir.layer import Layer, NetworkValue, TensorType, ValueRef
from sartor.codegen.ir.packing import Packing
from sartor.codegen.ir.schema import RANGE, Schema, physical_types
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation
from sartor.codegen.linking.adapts import AdaptKind
from sartor.codegen.linking.entry_functions import MANIFEST_KEY, entry_functions
from sartor.codegen.mlir.dispatches import DispatchCode, module_header
from sartor.codegen.mlir.iree_compiler import ir, run_passes, write_module

PARAMETER_SCOPE = "model"
# If they were inlined into the entry function, each inference would look weights up, and read them again if the mapped
# file cannot be used as it is.
_LOADED_ONCE = "inlining_policy = #util.inline.never"


@dataclass(frozen=True)
class Piece:
    """Lowered code under a symbol that is unique in the module."""

    symbol: str
    implementation: Implementation
    code: DispatchCode


@dataclass(frozen=True)
class Stitching:
    """The parts of one module.

    Attributes:
        layers: in execution order.
        inputs: network inputs.
        outputs: network outputs.
        pieces: the chosen piece of each layer, by name.
        adapts: the piece of each conversion.
        weights: parameter name to array, in ONNX layout.
        ranges: for each quantised value the ``RANGE`` that code takes as an argument.
    """

    layers: tuple[Layer, ...]
    inputs: tuple[NetworkValue, ...]
    outputs: tuple[NetworkValue, ...]
    pieces: Mapping[str, Piece]
    adapts: Mapping[AdaptKind, Piece]
    weights: Mapping[str, np.ndarray]
    ranges: Mapping[ValueRef, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class Stitched:
    """The module before its last compilation.

    Attributes:
        text: flow-level MLIR; weights appear as named parameters.
        parameters: packed weights by parameter name.
    """

    text: str
    parameters: dict[str, np.ndarray]


@dataclass
class _Body:
    """Lines of the entry function while it is written."""

    lines: list[str] = field(default_factory=list)
    values: dict[tuple[ValueRef, Schema], str] = field(default_factory=dict)
    used: dict[str, DispatchCode] = field(default_factory=dict)

    def call(self, piece: Piece, arguments: list[tuple[str, TensorType]], results: list[TensorType]) -> list[str]:
        """Call a piece; returns the names of its results."""
        self.used.setdefault(piece.symbol, piece.code)
        name = f"%v{len(self.lines)}"
        operands = ", ".join(value for value, _ in arguments)
        types = ", ".join(str(tensor) for _, tensor in arguments)
        count = f":{len(results)}" if len(results) > 1 else ""
        produced = ", ".join(map(str, results))
        self.lines.append(f"{name}{count} = util.call @{piece.symbol}({operands}) : ({types}) -> ({produced})")
        return [name] if len(results) == 1 else [f"{name}#{index}" for index in range(len(results))]


class _Writer:
    """Writes the entry function layer by layer."""

    def __init__(self, stitching: Stitching, target: Target) -> None:
        self._stitching = stitching
        self._target = target
        self._layers = {layer.name: layer for layer in stitching.layers}
        self._body = _Body()
        self._parameters: dict[tuple[str, Packing], str] = {}
        self.parameters: dict[str, np.ndarray] = {}
        self._declarations: list[str] = []

    def write(self, manifest: str) -> str:
        for layer in self._stitching.layers:
            self._layer(layer)
        returned = [self._returned(each) for each in self._stitching.outputs]
        attributes, devices = module_header(self._target)
        pieces = [code.text for _, code in sorted(self._body.used.items())]
        functions = entry_functions(
            self._stitching.inputs, self._stitching.outputs, self._body.lines, returned, manifest
        )
        return "\n".join(
            [f"module attributes {{{attributes}}} {{", devices, *self._declarations, *pieces, functions, "}"]
        )

    def _returned(self, output: NetworkValue) -> str:
        if output.constant is not None:
            return self._weight(output.constant, Packing(), output.type)[0]
        if output.source is None:
            raise ValueError(f"output '{output.name}' has no source")
        return self._value(output.source, Schema.plain(output.type, self._target.device))

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
        arguments += [self._range(own if each is None else layer.inputs[each]) for each in implementation.ranges]
        outputs = implementation.outputs
        results = physical_types(layer.task.results, outputs)
        names = self._body.call(piece, arguments, results)
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
            return f"%t{ref.index}"
        start = self._value(ref, produced)
        piece = self._stitching.adapts[kind]
        types = produced.physical(logical), schema.physical(logical)
        numbers = [self._range(ref) for _ in piece.implementation.ranges]
        (name,) = self._body.call(piece, [(start, types[0]), *numbers], [types[1]])
        self._body.values[ref, schema] = name
        return name

    def _origin(self, ref: ValueRef) -> tuple[TensorType, Schema]:
        """ONNX type of a value, and the schema it is produced in."""
        if ref.source is None:
            logical = self._stitching.inputs[ref.index].type
            return logical, Schema.plain(logical, self._target.device)
        logical = self._layers[ref.source].task.results[ref.index]
        return logical, self._stitching.pieces[ref.source].implementation.outputs[ref.index]

    def _range(self, ref: ValueRef) -> tuple[str, TensorType]:
        """The name and type of the argument that holds the range of a quantised value."""
        name = f"r.{ref.source or 'input'}.{ref.index}"
        parameter = self._parameters.get((name, Packing()))
        if parameter is None:
            parameter = self._declare(name, Packing(), RANGE, self._stitching.ranges[ref])
        return f"%{parameter}", RANGE

    def _declare(self, name: str, packing: Packing, tensor: TensorType, array: np.ndarray) -> str:
        """Add a packed array to the module, and a load of it at the beginning of the entry function."""
        parameter = self._parameters[name, packing] = f"p{len(self._parameters)}"
        self.parameters[parameter] = array
        self._declarations.append(
            f"util.global private @{parameter} <{_LOADED_ONCE}> = "
            f'#flow.parameter.named<"{PARAMETER_SCOPE}"::"{parameter}"> : {tensor}'
        )
        self._body.lines.append(f"%{parameter} = util.global.load immutable @{parameter} : {tensor}")
        return parameter

    def _weight(self, name: str, packing: Packing, logical: TensorType) -> tuple[str, TensorType]:
        tensor = packing.type_of(logical)
        parameter = self._parameters.get((name, packing))
        if parameter is None:
            parameter = self._declare(name, packing, tensor, packing.apply(self._stitching.weights[name]))
        return f"%{parameter}", tensor


def stitch(stitching: Stitching, target: Target, manifest: str) -> Stitched:
    """Write the module that runs the chosen pieces.

    Args:
        stitching: what to put together.
        target: what it is compiled for.
        manifest: JSON text that the module carries as reflection data of its entry function.
    """
    writer = _Writer(stitching, target)
    text = writer.write(manifest)
    return Stitched(text, writer.parameters)


def compile_stitched(stitched: Stitched, target: Target, path: Path, *, embed: bool = True) -> None:
    """Compile to a .vmfb file, with the weights inside or, if not ``embed``, as parameters of scope ``model``.

    Raises:
        CompileError: with IREE's diagnostic.
    """

    def make() -> ir.Module:
        module = ir.Module.parse(stitched.text)
        run_passes(module, "builtin.module(inline)")
        if embed:
            _embed(module, stitched.parameters)
        return module

    write_module(make, path, target.flags, start="flow")


def compile_unsplit(
    bytecode: bytes,
    weights: Mapping[str, np.ndarray],
    target: Target,
    manifest: str,
    path: Path,
    *,
    embed: bool = True,
    flags: Sequence[str] = (),
) -> None:
    """Compile the unsplit module by IREE's stock lowering alone, under the same entry and with a manifest.

    Args:
        bytecode: of the module.
        weights: parameter name to array.
        target: what it is compiled for.
        manifest: JSON text that the module carries; empty for none.
        path: the .vmfb to write.
        embed: whether weights are put inside.
        flags: of the compiler, beside the target's.

    Raises:
        CompileError: with IREE's diagnostic.
    """

    def make() -> ir.Module:
        module = ir.Module.parse(bytecode)
        reflection = ir.DictAttr.get({MANIFEST_KEY: ir.StringAttr.get(manifest)})
        for view in module.body.operations if manifest else ():
            if view.operation.name == "util.func":
                view.operation.attributes["iree.reflection"] = reflection
        if embed:
            _embed(module, weights)
        return module

    write_module(make, path, (*target.flags, *flags), start="input")


def _embed(module: ir.Module, parameters: Mapping[str, np.ndarray]) -> None:
    for view in module.body.operations:
        op = view.operation
        if op.name != "util.global":
            continue
        name = ir.StringAttr(op.attributes["sym_name"]).value
        if name in parameters:
            tensor = ir.TypeAttr(op.attributes["type"]).value
            array = np.ascontiguousarray(parameters[name])
            raw = array.view(np.uint8) if array.dtype == np.bool_ else array
            op.attributes["initial_value"] = ir.DenseResourceElementsAttr.get_from_buffer(raw, name, tensor)
