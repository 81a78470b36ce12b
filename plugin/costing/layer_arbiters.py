"""Find the layer whose ONNX nodes compute the reference results for a case that is measured."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sartor.codegen.ir.layer import Layer, ValueRef
from sartor.costing.layer_reference import LayerArbiter
from sartor.frontend.imported_model import ImportedModel
from sartor.tuning.measuring.benchmark_case import BenchmarkCase
from sartor.tuning.workers.shared_arrays import StoredArrays

_NAMELESS: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())


@dataclass(frozen=True)
class LayerArbiters:
    """Finds the arbiter of a case. Layers of one task compute the same, so any layer of the task serves."""

    imported: ImportedModel

    def __call__(self, case: BenchmarkCase) -> LayerArbiter | None:
        """The arbiter; None if the case belongs to no layer, or the model is not stored in a file."""
        imported = self.imported
        layer, inputs, outputs = self._found.get(case.key, (None, (), ()))
        if layer is None or not isinstance(imported.prepared, Path) or not isinstance(imported.weights, StoredArrays):
            return None
        stored = imported.weights.only(layer.weights)
        return LayerArbiter(layer.name, imported.prepared, inputs, outputs, layer.task.results, layer.weights, stored)

    @cached_property
    def _found(self) -> dict[str, tuple[Layer, tuple[str, ...], tuple[str, ...]]]:
        """Task key to a layer and its tensors' names: a layer with all names, if any. Layers of childnets have none."""
        graph = self.imported.graph
        layers = {layer.task.key: (layer, *_NAMELESS) for layer in reversed(list(graph.all_layers()))}
        for layer in reversed([*graph.layers, *(fusion.layer for fusion in graph.fusions)]):
            tensors = self._tensors(layer)
            if tensors is not None:
                layers[layer.task.key] = (layer, *tensors)
        return layers

    def _tensors(self, layer: Layer) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """Names of activations and of results; None unless every tensor has its own name."""
        names = self.imported.names
        inputs = [names.get(ref) for ref in layer.inputs]
        outputs = [names.get(ValueRef(layer.name, index)) for index in range(len(layer.task.results))]
        known = [arbiter for arbiter in (*inputs, *outputs) if arbiter is not None]
        if len(set(known)) < len(inputs) + len(outputs):
            return None
        return tuple(known[: len(inputs)]), tuple(known[len(inputs) :])
