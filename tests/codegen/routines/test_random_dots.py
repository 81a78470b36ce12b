"""Products of four numbers of 8 bits by VNNI are exact, in vectors of 32 and 64 bytes, whatever numbers and sizes."""

from __future__ import annotations

import os

import pytest

from sartor.codegen.ir.layer import Layer, LayerKind
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation
from sartor.codegen.kernels.isa.multipliers import INTEGER_DOTS
from sartor.codegen.mlir.machine import machine_of
from sartor.codegen.routines.storing.integers import IntegerFactor
from sartor.codegen.routines.vector.direct import Direct
from sartor.codegen.routines.vector.product import Product
from tests.codegen.routines.harness import Subject, layers
from tests.codegen.routines.widened.drawn import Wrong, drawn, model_of, unsupported, wrong_sums

# AVX-VNNI, whose vectors have 32 bytes, and VNNI in vectors of 64.
CPUS = ("alderlake", "cascadelake")
COUNT = int(os.environ.get("SARTOR_PAIR_LAYERS", "8"))
"""Layers of each vector length; a thorough run has some hundreds."""
_TOGETHER = 50


def _implementation(layer: Layer, turn: int, target: Target) -> Implementation:
    """One of the variants that are offered, in turn."""
    make = Product if layer.task.kind is LayerKind.CONTRACTION else Direct
    routine = IntegerFactor(make("dots", storage="i8", element=INTEGER_DOTS))
    offered = routine.parameters(layer.task, target)
    assert isinstance(offered, list), (layer.name, offered)
    built = routine.build(layer.task, offered[turn % len(offered)], target)
    assert isinstance(built, Implementation), (layer.name, built)
    return built


def _wrong(seeds: range, target: Target) -> list[Wrong]:
    chosen = {seed: of for seed in seeds if (of := drawn(seed)).image[1] >= INTEGER_DOTS.group}
    formed = [each for each in layers({"drawn": lambda: model_of(chosen)}) if each[0].task.weights]
    subjects = {
        layer.name: Subject(layer, weights, {"dots": _implementation(layer, turn, target)})
        for turn, (layer, weights) in enumerate(formed)
    }
    assert len(subjects) == len(chosen)
    return wrong_sums(subjects, chosen, target)


@pytest.mark.parametrize("cpu", CPUS)
def test_sums_are_those_of_the_definition(cpu: str) -> None:
    target = Target.create("cpu", cpu)
    if missing := unsupported(target):
        pytest.skip(f"this CPU has no {', '.join(sorted(missing))}")
    assert INTEGER_DOTS.exists_on(machine_of(target))
    first = CPUS.index(cpu) * 10_000
    parts = [range(first, first + COUNT)[start : start + _TOGETHER] for start in range(0, COUNT, _TOGETHER)]
    wrong = [each for seeds in parts for each in _wrong(seeds, target)]
    assert wrong == []
