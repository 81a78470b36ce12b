"""Instrumented networks: the same code with results of layers among the outputs.

A module returns only its outputs. An instrumented one is linked from the same variants in the same order, and returns
results of layers beside them. It stands for the other if both have the same bits in the network's outputs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from sartor.codegen.ir.block_packing import block_of
from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import NetworkValue, ValueRef
from sartor.codegen.ir.schema import QUANTISED
from sartor.codegen.ir.variants.routine import Variant, dtype_of
from sartor.codegen.routine_registry import described
from sartor.errors import UnsupportedModelError
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.layer_tensors import layer_tensors
from sartor.onnx_model.graphs.names import TakenNames
from sartor.onnx_model.graphs.prepared import prepared_model
from sartor.planning.recipe import Recipe
from sartor.reference.layerwise.layer_check import Claim
from sartor.reference.layerwise.operators import EXACT, Precision

CHUNK_BYTES = 128 << 20
"""Limit on the size of the results that an instrumented network returns, which only a single one may exceed."""

# Winograd's F(6x6, 3x3) multiplies rounding errors by up to about 100.
_TRANSFORMED = 128.0
_ROUNDOFF: Mapping[str, float] = {"bf16": 2.0**-8, "f16": 2.0**-11, "tf32": 2.0**-11}


@dataclass(frozen=True)
class Shown:
    """A result of a layer that an instrumented network returns.

    Attributes:
        value: the result.
        tensor: of the user's file for which it stands.
        claim: how.
    """

    value: ValueRef
    tensor: str
    claim: Claim


def shown_results(imported: ImportedModel, recipe: Recipe, tensors: Collection[str]) -> list[Shown]:
    """The results of layers that stand for tensors of the user's file, in order, each tensor once.

    Args:
        imported: the model.
        recipe: its layers and variants.
        tensors: names of all tensors in the file.

    Raises:
        UnsupportedModelError: if a layer rounds to ranges that are not in the file, or its weight to blocks.
    """
    named = layer_tensors(prepared_model(imported.prepared), recipe.graph)
    outputs = {output.name for output in recipe.graph.outputs}
    results: dict[str, Shown] = {}
    for layer in recipe.graph.layers:
        precision = _precision(imported, layer.name, recipe.variants[layer.name], dtype_of(layer.task))
        for index, name in enumerate(named[layer.name].results):
            for shown in _claims(imported, tensors, ValueRef(layer.name, index), name, precision):
                if shown.tensor not in outputs:
                    results.setdefault(shown.tensor, shown)
    return list(results.values())


def rewritten_results(imported: ImportedModel, graph: LayerGraph, tensors: Collection[str]) -> list[tuple[str, Shown]]:
    """The tensors of the rewritten model that layers give and that stand for tensors of the user's file, each once.

    Args:
        imported: the model.
        graph: the layers.
        tensors: as for ``shown_results``.
    """
    named = layer_tensors(prepared_model(imported.prepared), graph)
    outputs = {output.name for output in graph.outputs}
    results: dict[str, tuple[str, Shown]] = {}
    for layer in graph.layers:
        for index, name in enumerate(named[layer.name].results):
            for shown in _claims(imported, tensors, ValueRef(layer.name, index), name, EXACT):
                if name is not None and shown.tensor not in outputs:
                    results.setdefault(shown.tensor, (name, shown))
    return list(results.values())


def _claims(
    imported: ImportedModel, tensors: Collection[str], value: ValueRef, name: str | None, precision: Precision
) -> Iterator[Shown]:
    layer = value.source or ""
    if name is None:
        return
    if name in tensors:
        yield Shown(value, name, Claim(layer, precision=precision))
    elif name in imported.integers:
        stored = imported.integers[name]
        if stored.name in tensors:
            yield Shown(value, stored.name, Claim(layer, stored.scale, stored.zero, precision))


def output_claims(recipe: Recipe, names: Collection[str]) -> dict[str, Claim]:
    """What some of the network's outputs stand for, by their name: counts of elements stand for nothing in the file."""
    outputs = [output for output in recipe.graph.outputs if output.name in names]
    return {output.name: Claim(output.source.source or "" if output.source else "") for output in outputs}


def _precision(imported: ImportedModel, layer: str, variant: Variant, own: str) -> Precision:
    """How exactly a variant computes.

    Raises:
        UnsupportedModelError: if it rounds to ranges that are not in the file, or its weight to blocks of integers.
    """
    traits = described(variant.descriptor).traits
    if variant.dtype == QUANTISED != own and not imported.is_quantised:
        raise UnsupportedModelError(f"layer '{layer}' rounds to ranges that the model does not have")
    if variant.dtype != own and block_of(variant.dtype) is not None:
        raise UnsupportedModelError(f"layer '{layer}' rounds its weight to blocks of integers")
    roundoff = _ROUNDOFF.get(variant.dtype, 0.0) if variant.dtype != own else 0.0
    return Precision(_TRANSFORMED if traits.transforms else 1.0, roundoff)


def chunks(graph: LayerGraph, shown: list[Shown], most: int = CHUNK_BYTES) -> list[list[Shown]]:
    """The results in groups, in order, by the limit on memory."""
    chunked: list[list[Shown]] = []
    left = 0
    for result in shown:
        needed = graph.type_of(result.value).bytes
        if needed > left or not chunked:
            chunked.append([])
            left = most
        chunked[-1].append(result)
        left -= needed
    return chunked


def instrumented(imported: ImportedModel, recipe: Recipe, shown: list[Shown]) -> tuple[ImportedModel, Recipe]:
    """The model and the recipe with these results as outputs after the network's own."""
    graph = recipe.graph
    names = TakenNames(
        [*(layer.name for layer in graph.layers), *(value.name for value in (*graph.inputs, *graph.outputs))]
    )
    extra = []
    for result in shown:
        kind = graph.type_of(result.value)
        name = names.fresh(f"result {result.value.index} of {result.value.source}")
        extra.append(NetworkValue(name, kind, kind.numpy_dtype.name, result.value))
    wider = replace(graph, outputs=(*graph.outputs, *extra))
    # Samples are of single calls, which keep no states.
    return replace(imported, graph=wider, states=()), replace(recipe, graph=wider)
