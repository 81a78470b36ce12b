"""Small layers for kernels of GPUs, and what each computes by NumPy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Routine, Variant, variant_of
from sartor.codegen.routines.iree.stock import Stock
from sartor.runtime.driver.iree_runtime import Program
from tests.codegen.routines.harness import Subject, layers, load, run
from tests.codegen.routines.layer_cases import Cases
from tools.cuda.interpreter import Counts
from tools.cuda.layer_run import run_layer

HOST = Target.create("cpu")
GPU = Target.create("cuda", "sm_80")


@dataclass(frozen=True)
class Known:
    """Layers by name, and a module that computes them on the CPU by stock code."""

    subjects: Mapping[str, Subject]
    program: Program

    @staticmethod
    def of(cases: Cases, folder: Path) -> Known:
        """The layers of some cases."""
        found = {layer.name: Subject(layer, weights, _stock(layer)) for layer, weights in _layers(cases, folder)}
        return Known(found, load(found, HOST))

    def expected(self, name: str) -> np.ndarray:
        """What stock code computes."""
        subject = self.subjects[name]
        return run(self.program, subject, "stock", subject.inputs())

    def error(self, name: str, code: Implementation) -> tuple[float, list[Counts]]:
        """Largest error of code for a GPU, relative to the largest output, and what its kernels did."""
        subject = self.subjects[name]
        weights = [np.asarray(subject.weights[each]) for each in subject.layer.weights]
        found, counts = run_layer(code, subject.task, [np.asarray(each) for each in subject.inputs()], weights)
        expected = self.expected(name).astype(np.float64)
        return float(np.abs(found - expected).max() / np.abs(expected).max()), counts


def built(routine: Routine, layer: Layer, parameters: Mapping[str, int]) -> Implementation:
    """A variant's code for a GPU."""
    found = variant_of(routine, layer.task, dict(parameters), GPU)
    assert isinstance(found, Variant), found
    return found.implementation


def _stock(layer: Layer) -> dict[str, Implementation]:
    found = variant_of(Stock(), layer.task, {}, HOST)
    assert isinstance(found, Variant), found
    return {"stock": found.implementation}


def _layers(cases: Cases, folder: Path) -> Iterator[tuple[Layer, Mapping[str, np.ndarray]]]:
    for layer, weights in layers(folder, {"cases": cases.model}):
        if layer.name in cases.names:
            yield layer, weights
