"""Put the chosen code of layers together: one module per device, adapts on the edges, packed weights inside.

Layers are already dispatches, so IREE only schedules, plans memory and generates machine code. The same choices in the
same order give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from sartor.codegen.ir.block_packing import InBlocks, rounded_name
from sartor.codegen.ir.layer import Layer, TensorType, ValueRef
from sartor.codegen.ir.packing import Packing
from sartor.codegen.ir.schema import RANGE, Schema, physical_types
from sartor.codegen.ir.states import CachePair, StatePair
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation
from sartor.codegen.linking.adapts import AdaptKind
from sartor.codegen.linking.functions.aligned_buffers import align_buffers
from sartor.codegen.linking.functions.borrowed_inputs import protect_inputs
from sartor.codegen.linking.functions.entries import Entry, Port
from sartor.codegen.linking.functions.entry_functions import MANIFEST_KEY, bound_function, entry_functions
from sartor.codegen.linking.functions.function_parts import cut_function, join_overwriting_functions
from sartor.codegen.linking.functions.growing import growing_functions
from sartor.codegen.linking.functions.open_sizes import OpenSizes
from sartor.codegen.linking.functions.stateful import stateful_functions
from sartor.codegen.linking.functions.stateful_calls import StatefulCalls
from sartor.codegen.linking.weights.joining import are_many, join_weights, kept_out_of_code
from sartor.codegen.linking.weights.parameters import Make, Parameters
from sartor.codegen.mlir.before_lowering.index_constants import index_constants
from sartor.codegen.mlir.before_lowering.vulkan_defects import avoid_defects
from sartor.codegen.mlir.before_lowering.widened_operands import drop_barriers
from sartor.codegen.mlir.dispatches import DispatchCode, module_header
from sartor.codegen.mlir.executables import CodeStore, write_divided
from sartor.codegen.mlir.iree_compiler import WIDE_FLAGS, ir, is_double, run_passes, write_module


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
        entries: the functions, all for the module's device.
        pieces: the chosen piece of each layer, by name.
        adapts: the piece of each conversion.
        weights: parameter name to array, in ONNX layout.
        ranges: for each quantised value the ``RANGE`` that code takes as an argument.
        only_bound: whether entries have no other function than the one that writes into given buffers.
        states: inputs and outputs that are the same storage across calls; only one entry may have any.
        caches: the same of caches that grow; then there are no states.
    """

    entries: tuple[Entry, ...]
    pieces: Mapping[str, Piece]
    adapts: Mapping[AdaptKind, Piece]
    weights: Mapping[str, np.ndarray]
    ranges: Mapping[ValueRef, np.ndarray] = field(default_factory=dict)
    only_bound: bool = False
    states: tuple[StatePair, ...] = ()
    caches: tuple[CachePair, ...] = ()


@dataclass(frozen=True)
class Stitched:
    """The module before its last compilation.

    Attributes:
        text: flow-level MLIR; weights appear as named parameters.
        parameters: packed weights by parameter name.
    """

    text: str
    parameters: dict[str, np.ndarray]


@dataclass(frozen=True)
class Outline:
    """The module without its weights.

    Attributes:
        text: as in ``Stitched``.
        weight_bytes: bytes of the packed weights.
    """

    text: str
    weight_bytes: int


@dataclass
class _Body:
    """Lines of an entry function while it is written."""

    entry: Entry
    sizes: OpenSizes
    lines: list[str] = field(default_factory=list)
    values: dict[tuple[ValueRef, Schema], str] = field(default_factory=dict)
    loaded: set[str] = field(default_factory=set)

    def call(self, piece: Piece, arguments: list[tuple[str, TensorType]], results: list[TensorType]) -> list[str]:
        """Call a piece; returns the names of its results."""
        name = f"%v{len(self.lines)}"
        sizes = self.sizes.values(piece.implementation.symbols)
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
        self._ports = {each.ref: (index, each) for index, each in enumerate(entry.inputs)}
        self._layers = {layer.name: layer for layer in entry.layers}
        for layer in entry.layers:
            self._layer(layer)
        returned = tuple(self._returned(each) for each in entry.outputs)
        return Written(tuple(self._body.lines), returned)

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
        arguments += [self._range(own if each is None else layer.inputs[each]) for each in implementation.ranges]
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
        return packing.apply(weights[next((each for each in names if each in weights), name)])


def stitch(stitching: Stitching, target: Target, manifest: str, prefix: str = "", file: Path | None = None) -> Stitched:
    """Write the module that runs the chosen pieces.

    Args:
        stitching: what to put together.
        target: what it is compiled for.
        manifest: JSON text that the module carries as reflection data of its first entry function; empty for none.
        prefix: of the names of its parameters, which differ between the modules of one network.
        file: where packed weights may be kept, if they are many; None for memory.
    """
    parameters = Parameters(prefix)
    text = _write(stitching, target, parameters, manifest)
    return Stitched(text, parameters.arrays(file))


def outline(stitching: Stitching, target: Target) -> Outline:
    """Write the module that runs the chosen pieces, without packing weights."""
    parameters = Parameters()
    text = _write(stitching, target, parameters, "")
    return Outline(text, parameters.weight_bytes)


def _write(stitching: Stitching, target: Target, parameters: Parameters, manifest: str) -> str:
    writer = Writer(stitching, parameters)
    # One function carries the manifest for all.
    carried = [manifest, *[""] * (len(stitching.entries) - 1)]
    is_whole = len(stitching.entries) == 1
    functions = []
    for entry, text in zip(stitching.entries, carried, strict=True):
        written = writer.entry(entry)
        if stitching.only_bound:
            functions.append(bound_function(entry, written.lines, written.returned))
        else:
            functions.append(entry_functions(entry, written.lines, written.returned, text, is_whole=is_whole))
            if stitching.states:
                functions += stateful_functions(entry, stitching.states, written.lines, written.returned)
            if stitching.caches:
                functions += growing_functions(entry, stitching.caches, written.lines, written.returned)
    attributes, devices = module_header(target)
    return module_text(attributes, [devices, *parameters.declarations, *writer.pieces, *functions])


def module_text(attributes: str, parts: Sequence[str]) -> str:
    """A module of these attributes and parts."""
    return "\n".join([f"module attributes {{{attributes}}} {{", *parts, "}"])


def compile_stitched(
    stitched: Stitched, target: Target, path: Path, *, embed: bool = True, store: CodeStore | None = None
) -> None:
    """Compile to a .vmfb file, with the weights inside or, if not ``embed``, as parameters of scope ``model``.

    Args:
        stitched: the module.
        target: what it is compiled for.
        path: the .vmfb to write.
        embed: whether weights are put inside.
        store: has code of other modules, and takes this one's.

    Raises:
        CompileError: with IREE's diagnostic.
    """

    def make() -> ir.Module:
        module = ir.Module.parse(stitched.text)
        run_passes(module, "builtin.module(inline)")
        align_buffers(module, target)
        if embed:
            embed_weights(module, stitched.parameters)
            if are_many(stitched.parameters):
                join_weights(module, stitched.parameters)
        return module

    if target.device == "cpu":
        write_divided(make, path, target.flags, store)
    else:
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
    stateful: StatefulCalls | None = None,
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
        stateful: what keeps states between calls; None if the network has none.

    Raises:
        CompileError: with IREE's diagnostic.
    """

    def make() -> ir.Module:
        module = ir.Module.parse(bytecode)
        if target.written_out is not None:
            devices = f'[#hal.device.target<"{target.device}", [{target.written_out}]>]'
            module.operation.attributes["hal.device.targets"] = ir.Attribute.parse(devices)
        reflection = ir.DictAttr.get({MANIFEST_KEY: ir.StringAttr.get(manifest)})
        for view in module.body.operations if manifest else ():
            if view.operation.name == "util.func":
                view.operation.attributes["iree.reflection"] = reflection
        protect_inputs(module)
        index_constants(module)
        if target.device == "vulkan":
            avoid_defects(module)
        cut_function(module)
        if stateful is not None:
            stateful.add_to(module)
        if embed:
            embed_weights(module, {name: array for name, array in weights.items() if name not in late})
        return module

    def finish(module: ir.Module) -> None:
        drop_barriers(module)
        join_overwriting_functions(module)
        if late:
            with module.context:
                embed_weights(module, {name: weights[name] for name in late})
        if is_joined:
            join_weights(module, weights)

    is_joined = embed and are_many(weights)
    late = kept_out_of_code(weights) if is_joined else set()
    wide = WIDE_FLAGS if is_double(bytecode) else ()
    write_module(make, path, (*target.flags, *wide, *flags), start="input", edits={"flow": finish})


def embed_weights(module: ir.Module, parameters: Mapping[str, np.ndarray]) -> None:
    """Put arrays into a module, as the initial values of the globals that name them as parameters."""
    for view in module.body.operations:
        op = view.operation
        if op.name != "util.global":
            continue
        name = ir.StringAttr(op.attributes["sym_name"]).value
        if name in parameters:
            tensor = ir.TypeAttr(op.attributes["type"]).value
            op.attributes["initial_value"] = _initial_value(np.ascontiguousarray(parameters[name]), name, tensor)


def _initial_value(array: np.ndarray, name: str, tensor: ir.Type) -> ir.Attribute:
    """An array as the value of a global, without a copy unless it holds truth values.

    IREE 3.13 folds these, and ends its process if they are a resource: "ElementsAttr does not provide iteration
    facilities for type `llvm::APInt`".
    """
    if array.dtype == np.bool_:
        shape = ir.RankedTensorType(tensor).shape
        return ir.DenseElementsAttr.get(array, type=ir.IntegerType.get_signless(1), shape=shape)
    return ir.DenseResourceElementsAttr.get_from_buffer(array, name, tensor)
