"""Small layers for kernels of GPUs, and what each computes by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnx import numpy_helper

from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Routine, Variant, variant_of
from sartor.frontend.imported_model import ImportedModel
from sartor.tuning.calibration.quantised_range import QuantisedRange
from tests.codegen.routines.layer_cases import Cases
from tests.codegen.routines.narrow import rounded_by_channel
from tests.importing import imported_model
from tools.cuda.interpreter import Counts
from tools.cuda.layer_run import run_layer

GPU = Target.create("cuda", "sm_80")
Array = NDArray[Any]


@dataclass(frozen=True)
class Known:
    """A model of separate layers.

    Attributes:
        imported: the model.
        inputs: of the model, in order.
        expected: result of each layer.
        ranges: of the inputs, if inputs and weights are such that 8 bits hold them; empty if they are not.
    """

    imported: ImportedModel
    inputs: list[Array]
    expected: Mapping[str, Array]
    ranges: Sequence[QuantisedRange] = ()

    @staticmethod
    def of(cases: Cases, *, quantised: bool = False) -> Known:
        """The layers of some cases."""
        model = cases.model()
        for initializer in model.graph.initializer if quantised else ():
            initializer.CopyFrom(
                numpy_helper.from_array(rounded_by_channel(numpy_helper.to_array(initializer)), initializer.name)
            )
        imported = imported_model(model)
        random = np.random.default_rng(2)
        feeds = {name: random.standard_normal(shape).astype(np.float32) for name, shape in cases.inputs}
        ranges = []
        if quantised:
            moved = {name: feed + 0.1 * index - 0.7 for index, (name, feed) in enumerate(feeds.items())}
            ranges = [QuantisedRange.of(float(each.min()), float(each.max())) for each in moved.values()]
            feeds = {
                name: one.round(each).astype(np.float32)
                for one, (name, each) in zip(ranges, moved.items(), strict=True)
            }
        session = onnxruntime.InferenceSession(imported.path, providers=["CPUExecutionProvider"])
        found = session.run([name for name, _ in cases.outputs], feeds)
        return Known(imported, list(feeds.values()), dict(zip(cases.names, found, strict=True)), ranges)

    def layer(self, name: str) -> Layer:
        """The layer of a case."""
        return next(layer for layer in self.imported.graph.layers if layer.name == name)

    def error(self, name: str, code: Implementation) -> tuple[float, list[Counts]]:
        """Largest error of code for a GPU, relative to the largest output, and what its kernels did."""
        layer = self.layer(name)
        inputs = [self.inputs[each.index] for each in layer.inputs]
        weights = [np.asarray(self.imported.weights[weight]) for weight in layer.weights]
        expected = self.expected[name].astype(np.float64)
        ranges: dict[int | None, QuantisedRange] = {None: result_range(expected)}
        if self.ranges:
            ranges |= {index: self.ranges[each.index] for index, each in enumerate(layer.inputs)}
        found, counts = run_layer(code, layer.task, inputs, weights, ranges)
        expected = expected.reshape(found.shape)
        return float(np.abs(found - expected).max() / np.abs(expected).max()), counts


def result_range(array: Array) -> QuantisedRange:
    """The range of a layer's result."""
    return QuantisedRange.of(float(array.min(initial=0.0)), float(array.max(initial=0.0)))


def built(routine: Routine, layer: Layer, parameters: Mapping[str, int]) -> Implementation:
    """A variant's code for a GPU."""
    found = variant_of(routine, layer.task, dict(parameters), GPU)
    assert isinstance(found, Variant), found
    return found.implementation
