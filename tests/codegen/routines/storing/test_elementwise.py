"""Elementwise layers in 8 bits, op by op and by tables of all results, give the bits of their definition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pytest
from onnx import ModelProto

from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.layouts import IMAGE_RANK
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Rejected, Variant, variants_of
from sartor.codegen.routines.storing.elementwise import ElementwiseImages
from sartor.codegen.routines.storing.table import TableLookUp
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import Array
from sartor.tuning.calibration.quantised_range import QuantisedRange
from tests.codegen.routines.harness import Subject, layers, load
from tests.codegen.routines.narrow import run_stored
from tests.codegen.routines.widened.drawn import unsupported
from tests.plugin.onnx_model.builders import FLOAT, model, node

ROUTINES = (ElementwiseImages(), TableLookUp())
STEP, ZERO = np.float32(0.037), 3
READ = (QuantisedRange(0.11, 5, "int8"), QuantisedRange(1 / 255, -128, "int8"))


@dataclass(frozen=True)
class Case:
    """A layer: operators on ``x``, on ``y`` if there is one, on constants, and on results ``0``, ``1`` and so on."""

    ops: tuple[tuple[str, str], ...]
    shapes: tuple[tuple[int, ...], ...]
    definition: Callable[..., Array]
    has_table: bool = False


CONSTANTS = {"factor": np.float32(0.3), "shift": np.float32(0.01), "least": np.float32(-1), "zero": np.float32(0)}
CONSTANTS |= {"step": STEP, "low": np.float32(-128 - ZERO), "high": np.float32(127 - ZERO)}
CASES = {
    "gate": Case((("Mul", "x y"),), ((2, 19, 5, 7), (2, 19, 1, 1)), lambda x, y: x * y),
    "few": Case((("Mul", "x y"),), ((1, 3, 9, 1), (1, 3, 1, 1)), lambda x, y: x * y),
    "sum": Case((("Add", "x y"),), ((8, 16, 2, 3), (8, 16, 2, 3)), lambda x, y: x + y),
    "several": Case(
        (("Add", "x y"), ("Max", "0 zero"), ("Mul", "1 y")),
        ((1, 40, 3, 4), (1, 40, 1, 1)),
        lambda x, y: np.maximum(x + y, np.float32(0)) * y,
    ),
    "relu": Case((("Relu", "x"),), ((2, 17, 6, 5),), lambda x: np.maximum(x, np.float32(0)), has_table=True),
    "scaled": Case(
        (("Mul", "x factor"), ("Add", "0 shift")),
        ((1, 16, 4, 4),),
        lambda x: x * np.float32(0.3) + np.float32(0.01),
        has_table=True,
    ),
    "rows": Case(
        (("Max", "x least"), ("Mul", "0 factor")),
        ((3, 11, 29),),
        lambda x: np.maximum(x, np.float32(-1)) * np.float32(0.3),
        has_table=True,
    ),
}


def _model() -> ModelProto:
    nodes, inputs, outputs = [], [], []
    for name, case in CASES.items():
        count = len(case.ops)
        rounding = (("Div", f"{count - 1} step"), ("Round", f"{count}"), ("Clip", f"{count + 1} low high"))
        ops = (*case.ops, *rounding, ("Mul", f"{count + 2} step"))
        for index, (kind, given) in enumerate(ops):
            read = [each if each in CONSTANTS else f"{name}.{each}" for each in given.split()]
            nodes.append(node(kind, read, [f"{name}.{index}"], name=f"{name}.{index}"))
        inputs += [(f"{name}.{each}", shape, FLOAT) for each, shape in zip("xy", case.shapes, strict=False)]
        outputs.append(f"{name}.{len(ops) - 1}")
    return model(nodes, inputs, outputs, CONSTANTS)


def _name(layer: Layer) -> str:
    return layer.name.partition(".")[0]


def _implementations(layer: Layer, target: Target) -> dict[str, Implementation]:
    found = [each for routine in ROUTINES for each in variants_of(routine, layer.task, target)]
    return {each.descriptor: each.implementation for each in found if isinstance(each, Variant)}


@pytest.fixture(scope="module")
def formed() -> dict[str, tuple[Layer, Mapping[str, Array]]]:
    return {_name(layer): (layer, weights) for layer, weights in layers({"cases": _model})}


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v2"])
def test_results_are_those_of_the_definition(cpu: str, formed: Mapping[str, tuple[Layer, Mapping[str, Array]]]) -> None:
    target = Target.create("cpu", cpu)
    if missing := unsupported(target):
        pytest.skip(f"this CPU has no {', '.join(sorted(missing))}")
    subjects = {name: Subject(*each, _implementations(each[0], target)) for name, each in formed.items()}
    program = load({each.layer.name: each for each in subjects.values()}, target)
    for name, case in CASES.items():
        offered = {each.partition("{")[0].rpartition(".")[2] for each in subjects[name].implementations}
        images = {"elementwise"} if len(case.shapes[0]) == IMAGE_RANK else set()
        assert offered == images | ({"table"} if case.has_table else set()), name
        _check(program, subjects[name], case)


def _check(program: Program, subject: Subject, case: Case) -> None:
    random = np.random.default_rng(0)
    inputs = [
        (random.integers(-128, 128, shape) - kind.zero_point).astype(np.float32) * np.float32(kind.scale)
        for kind, shape in zip(READ, case.shapes, strict=False)
    ]
    rounded = np.rint(case.definition(*inputs) / STEP)
    expected = np.clip(rounded, -128 - ZERO, 127 - ZERO) + ZERO
    ranges: dict[int | None, QuantisedRange] = {None: QuantisedRange(float(STEP), ZERO, "int8")}
    ranges |= dict(enumerate(READ))
    assert len(np.unique(expected)) > 2
    for each in subject.implementations:
        found = run_stored(program, subject, each, inputs, ranges)
        np.testing.assert_array_equal(np.rint(found / STEP) + ZERO, expected, each)


def test_layers_that_are_none_are_refused() -> None:
    """Reductions, tensors of another shape, and numbers that differ from element to element."""
    ramp = np.arange(256, dtype=np.float32).reshape(1, 256)
    nodes = [
        node("Softmax", ["x"], ["a"], name="softmax"),
        node("Add", ["x", "ramp"], ["b"], name="ramp"),
        node("Exp", ["few"], ["c"], name="small"),
    ]
    inputs = [("x", (3, 256), FLOAT), ("few", (3, 5), FLOAT)]
    target = Target.create("cpu", "x86-64-v3")
    formed = layers({"one": lambda: model(nodes, inputs, ["a", "b", "c"], {"ramp": ramp})})
    found = {
        layer.name: [each for routine in ROUTINES for each in variants_of(routine, layer.task, target)]
        for layer, _ in formed
    }
    assert found.keys() == {"softmax", "ramp", "small"}
    assert all(isinstance(each, Rejected) for variants in found.values() for each in variants)
