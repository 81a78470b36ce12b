"""Put the chosen code of layers together: one module per device, adapts on the edges, packed weights inside.

Layers are already dispatches, so IREE only schedules, plans memory and generates machine code. The same choices in the
same order give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sartor.codegen.ir.target import Target
from sartor.codegen.linking.entry_writer import Writer
from sartor.codegen.linking.functions.aligned_buffers import align_buffers
from sartor.codegen.linking.functions.borrowed_inputs import protect_inputs
from sartor.codegen.linking.functions.entry_functions import MANIFEST_KEY, bound_function, entry_functions
from sartor.codegen.linking.functions.function_parts import cut_function, join_overwriting_functions
from sartor.codegen.linking.functions.growing import growing_functions
from sartor.codegen.linking.functions.stateful import stateful_functions
from sartor.codegen.linking.functions.stateful_calls import StatefulCalls
from sartor.codegen.linking.pieces import Stitching
from sartor.codegen.linking.shared_memory import PHASE, has_open_sizes, share_memory
from sartor.codegen.linking.weights.joining import are_many, join_weights, kept_out_of_code
from sartor.codegen.linking.weights.parameters import Parameters
from sartor.codegen.mlir.before_lowering.bfloat_conversions import convert_by_floats
from sartor.codegen.mlir.before_lowering.index_constants import index_constants
from sartor.codegen.mlir.before_lowering.vulkan_defects import avoid_defects
from sartor.codegen.mlir.before_lowering.widened_operands import drop_barriers
from sartor.codegen.mlir.dispatches import module_header
from sartor.codegen.mlir.executables import CodeStore, write_divided
from sartor.codegen.mlir.iree_compiler import WIDE_FLAGS, ir, is_double, run_passes, write_module


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
    computed = stitching.computed
    entries = [entry if computed is None else entry.computing(computed) for entry in stitching.entries]
    for entry, text in zip(entries, carried, strict=True):
        written = writer.entry(entry)
        if stitching.only_bound:
            functions.append(bound_function(entry, written.lines, written.returned))
        else:
            functions.append(entry_functions(entry, written.lines, written.returned, text, is_whole=is_whole))
            if stitching.states:
                functions += stateful_functions(entry, stitching.states, written.lines, written.returned, writer.code)
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

    if target.is_cpu:
        edits = {PHASE: share_memory} if has_open_sizes(stitched.text) else {}
        write_divided(make, path, target.flags, store, edits)
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
        if target.is_cpu:
            convert_by_floats(module)
        if target.is_vulkan:
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
