"""Worker side: compile a whole network, split into chosen variants or unsplit by IREE's stock lowering."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import ValueRef
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Variant
from sartor.codegen.linking.overwriting import overwriting_layers, overwriting_symbol
from sartor.codegen.linking.stitching import (
    PARAMETER_SCOPE,
    Piece,
    Stitching,
    compile_stitched,
    compile_unsplit,
    stitch,
)
from sartor.codegen.mlir.dispatches import lower
from sartor.runtime.driver.iree_runtime import write_parameters
from sartor.tuning.calibration.quantised_range import QuantisedRange
from sartor.tuning.cost_tables.conversions import adapts_between
from sartor.tuning.measuring.benchmark_case import symbol_of


@dataclass(frozen=True)
class NetFiles:
    """Files of a compiled network: the module, and the weights if they are not inside it.

    ``weight_bytes`` is the size of the weights, inside the module or not.
    """

    module: Path
    weights: Path | None
    weight_bytes: int = 0

    @property
    def parameters(self) -> dict[str, Path]:
        """Files of weights outside the module, by parameter scope."""
        return {} if self.weights is None else {PARAMETER_SCOPE: self.weights}


@dataclass(frozen=True)
class SplitNetwork:
    """A network of chosen variants, by layer name, with the ranges of quantised values."""

    graph: LayerGraph
    variants: Mapping[str, Variant]
    ranges: Mapping[ValueRef, QuantisedRange] = field(default_factory=dict)


@dataclass(frozen=True)
class UnsplitNetwork:
    """A network that IREE lowers as a whole: the module's bytecode."""

    bytecode: bytes


def build_net(
    net: SplitNetwork | UnsplitNetwork,
    weights: Mapping[str, np.ndarray],
    target: Target,
    manifest: str,
    files: NetFiles,
) -> int:
    """Worker side: compile a network into ``files``; returns the bytes of its weights.

    Raises:
        CompileError: with IREE's diagnostic.
    """
    embed = files.weights is None
    if isinstance(net, UnsplitNetwork):
        parameters: Mapping[str, np.ndarray] = weights
        compile_unsplit(net.bytecode, weights, target, manifest, files.module, embed=embed)
    else:
        stitched = stitch(_stitching(net, weights, target), target, manifest)
        parameters = stitched.parameters
        compile_stitched(stitched, target, files.module, embed=embed)
    if files.weights is not None:
        write_parameters(files.weights, parameters)
    return sum(array.nbytes for array in parameters.values())


def _stitching(net: SplitNetwork, weights: Mapping[str, np.ndarray], target: Target) -> Stitching:
    """The chosen variants and the adapts between them, lowered."""
    chosen = _chosen(net)
    implementations = dict(chosen.values())
    kinds = sorted({kind for _, kind in adapts_between(net.graph, net.variants, target.device)})
    adapts = {kind: kind.implementation() for kind in kinds}
    code = lower(implementations | {kind.symbol: each for kind, each in adapts.items()}, target)
    return Stitching(
        layers=net.graph.layers,
        inputs=net.graph.inputs,
        outputs=net.graph.outputs,
        pieces={name: Piece(each, implementations[each], code[each]) for name, (each, _) in chosen.items()},
        adapts={kind: Piece(kind.symbol, each, code[kind.symbol]) for kind, each in adapts.items()},
        weights=weights,
        ranges={ref: each.numbers for ref, each in net.ranges.items()},
    )


def _chosen(net: SplitNetwork) -> dict[str, tuple[str, Implementation]]:
    """Symbol and code of each layer, by name; code overwrites an activation where that is read for the last time."""
    implementations = {name: variant.implementation for name, variant in net.variants.items()}
    over = overwriting_layers(net.graph.layers, implementations, net.graph.outputs)
    layers = {layer.name: layer for layer in net.graph.layers}
    found: dict[str, tuple[str, Implementation]] = {}
    for name, variant in sorted(net.variants.items()):
        symbol = symbol_of(layers[name].task.key, variant)
        if name in over:
            found[name] = overwriting_symbol(symbol), over[name].implementation()
        else:
            found[name] = symbol, variant.implementation
    return found
