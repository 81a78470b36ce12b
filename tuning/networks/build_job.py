"""Worker side: compile a whole network, split into chosen variants or unsplit by IREE's stock lowering."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import ValueRef
from sartor.codegen.ir.sizes.computed import ComputedSize
from sartor.codegen.ir.states import CachePair, StatePair
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Variant, implementations_of
from sartor.codegen.linking.adapts import AdaptKind
from sartor.codegen.linking.functions.cut_inputs import cutting, symbol_of_cut
from sartor.codegen.linking.functions.entries import Entry, devices_of, entries_of
from sartor.codegen.linking.functions.stateful_calls import StatefulCalls
from sartor.codegen.linking.overwriting import overwriting_layers, overwriting_symbol
from sartor.codegen.linking.pieces import Piece, Stitching
from sartor.codegen.linking.planned_memory import planned_bytes, without_code
from sartor.codegen.linking.stitching import compile_stitched, compile_unsplit, outline, stitch
from sartor.codegen.mlir.dispatches import lower
from sartor.runtime.driver.iree_runtime import write_parameters
from sartor.runtime.files.checksums import PART as CHECKSUMS
from sartor.runtime.files.checksums import write_checksums
from sartor.runtime.segments.packing import pack
from sartor.runtime.segments.record import part_name
from sartor.tuning.calibration.quantised_range import QuantisedRange
from sartor.tuning.kept.code import KeptCode
from sartor.tuning.measuring.benchmark_case import symbol_of
from sartor.tuning.networks.net_files import NetFiles
from sartor.tuning.transfers.conversions import adapts_between

__all__ = [
    "NetFiles",
    "SplitNetwork",
    "UnsplitNetwork",
    "build_net",
    "packed_file",
    "planned_memory",
    "stitchings",
    "write_weights",
]


@dataclass(frozen=True)
class SplitNetwork:
    """A network of chosen variants, by layer name, with the ranges of quantised values.

    Modules also have functions that keep its ``states``, or its ``caches`` that grow, between calls. Callers neither
    give nor get a ``computed`` size.
    """

    graph: LayerGraph
    variants: Mapping[str, Variant]
    ranges: Mapping[ValueRef, QuantisedRange] = field(default_factory=dict)
    states: tuple[StatePair, ...] = ()
    caches: tuple[CachePair, ...] = ()
    computed: ComputedSize | None = None


@dataclass(frozen=True)
class UnsplitNetwork:
    """A network that IREE lowers as a whole: the module's bytecode, and what keeps its states between calls."""

    bytecode: bytes
    stateful: StatefulCalls | None = None


def build_net(
    net: SplitNetwork | UnsplitNetwork,
    weights: Mapping[str, np.ndarray],
    target: Target,
    manifest: str,
    files: NetFiles,
) -> int:
    """Worker side: compile a network into ``files``; returns the bytes of its weights.

    The unsplit model runs on the target's first device.

    Raises:
        CompileError: with IREE's diagnostic.
    """
    embed = files.weights is None
    if isinstance(net, UnsplitNetwork):
        parameters: Mapping[str, np.ndarray] = weights
        compile_unsplit(net.bytecode, weights, target, manifest, files.module, embed=embed, stateful=net.stateful)
    else:
        parameters = _build_split(net, weights, target, manifest, files)
    if files.weights is not None:
        write_weights(files, parameters)
    return sum(array.nbytes for array in parameters.values())


def packed_file(module: Path) -> Path:
    """Where the packed weights of a module are kept while it is compiled, if they are many."""
    return module.with_suffix(f"{module.suffix}.packed")


def write_weights(files: NetFiles, parameters: Mapping[str, np.ndarray]) -> None:
    """Write the weights beside a module, and put their checksums into its file."""
    if files.weights is None:
        raise ValueError("the weights have no file")
    write_parameters(files.weights, parameters)
    record_checksums(files)


def record_checksums(files: NetFiles) -> None:
    """Put the checksums of the weights beside the module into its file."""
    record = files.module.with_suffix(".checksums")
    write_checksums(record, files.parameters)
    pack(files.module, {CHECKSUMS: record})
    record.unlink()


def _build_split(
    net: SplitNetwork, weights: Mapping[str, np.ndarray], target: Target, manifest: str, files: NetFiles
) -> dict[str, np.ndarray]:
    """Compile a module for each device that the network uses, into one file; returns the parameters of all."""
    parameters: dict[str, np.ndarray] = {}
    parts: dict[str, Path] = {}
    made = stitchings(net, weights, target)
    first = next(iter(made))
    for device, stitching in made.items():
        part = part_name(device, first)
        path = files.module.with_suffix(f".{part}") if part else files.module
        names = ("" if part else manifest, f"{device}_" if part else "")
        stitched = stitch(stitching, target.of(device), *names, packed_file(path))
        store, embed = KeptCode.of_user(), files.weights is None
        compile_stitched(stitched, target.of(device), path, embed=embed, store=store)
        parameters |= stitched.parameters
        if part:
            parts[part] = path
    if parts:
        pack(files.module, parts)
    return parameters


def planned_memory(net: SplitNetwork, target: Target) -> int | None:
    """Worker side: the bytes of weights, activations, inputs and outputs that the module of a network will take.

    Returns:
        Bytes; None if IREE knows a size only when the module runs, or the network needs several devices.

    Raises:
        CompileError: with IREE's diagnostic.
    """
    stitched = stitchings(net, {}, target, with_code=False)
    if len(stitched) > 1:
        return None
    ((device, stitching),) = stitched.items()
    module = outline(stitching, target.of(device))
    shapes = [value.type.shape for value in net.graph.inputs]
    planned = planned_bytes(module.text, shapes, target.of(device))
    if planned is None:
        return None
    return module.weight_bytes + sum(value.type.bytes for value in net.graph.inputs) + planned


def stitchings(
    net: SplitNetwork, weights: Mapping[str, np.ndarray], target: Target, *, with_code: bool = True, prefix: str = ""
) -> dict[str, Stitching]:
    """The chosen variants and the adapts between them, lowered: by device, the one of the first module first.

    Kernels are empty if not ``with_code``. Names of code begin with ``prefix``.
    """
    code = implementations_of(net.variants)
    devices, entries = devices_of(code, target.device), entries_of(net.graph, code, target.device)
    home = target.device if len(devices) > 1 else devices[0]
    local = {kind.local for _, kind in adapts_between(net.graph, net.variants, home)}
    kinds = sorted(kind for kind in local if kind is not None)
    chosen = {
        name: (prefix + symbol, implementation if with_code else without_code(implementation))
        for name, (symbol, implementation) in _chosen(net).items()
    }
    return {
        device: _stitching(
            [entry for entry in entries if entry.device == device],
            {name: piece for name, piece in chosen.items() if code[name].output.device == device},
            [kind for kind in kinds if kind.target.device == device],
            weights,
            {ref: value_range.numbers for ref, value_range in net.ranges.items()},
            target.of(device),
            prefix,
            net,
        )
        for device in devices
    }


def _stitching(
    entries: Sequence[Entry],
    chosen: Mapping[str, tuple[str, Implementation]],
    kinds: Sequence[AdaptKind],
    weights: Mapping[str, np.ndarray],
    ranges: Mapping[ValueRef, np.ndarray],
    target: Target,
    prefix: str,
    net: SplitNetwork,
) -> Stitching:
    """Layers and adapts of one device, lowered, with what the network keeps between calls."""
    implementations = dict(chosen.values())
    adapts = {kind: (prefix + kind.symbol, kind.implementation()) for kind in kinds}
    cuts = {name: (prefix + symbol_of_cut(cut), cut) for name, cut in _cuts(entries, net.computed).items()}
    code = lower(implementations | dict(adapts.values()) | dict(cuts.values()), target)
    return Stitching(
        entries=tuple(entries),
        pieces={name: Piece(layer, implementations[layer], code[layer]) for name, (layer, _) in chosen.items()},
        adapts={kind: Piece(symbol, implementation, code[symbol]) for kind, (symbol, implementation) in adapts.items()},
        weights=weights,
        ranges=ranges,
        states=net.states,
        caches=net.caches,
        cuts={name: Piece(symbol, cut, code[symbol]) for name, (symbol, cut) in cuts.items()},
        computed=net.computed,
    )


def _cuts(entries: Sequence[Entry], computed: ComputedSize | None) -> Mapping[str, Implementation]:
    """What cuts inputs to a size that a network computes."""
    if computed is None:
        return {}
    (entry,) = (entry.computing(computed) for entry in entries)
    return {} if entry.length is None else cutting(entry, entry.length)


def _chosen(net: SplitNetwork) -> dict[str, tuple[str, Implementation]]:
    """Symbol and code of each layer, by name; code overwrites an activation where that is read for the last time."""
    implementations = implementations_of(net.variants)
    over = overwriting_layers(net.graph.layers, implementations, net.graph.outputs)
    layers = {layer.name: layer for layer in net.graph.layers}
    chosen_variants: dict[str, tuple[str, Implementation]] = {}
    for name, variant in sorted(net.variants.items()):
        symbol = symbol_of(layers[name].task.key, variant)
        if name in over:
            chosen_variants[name] = overwriting_symbol(symbol), over[name].implementation()
        else:
            chosen_variants[name] = symbol, variant.implementation
    return chosen_variants
