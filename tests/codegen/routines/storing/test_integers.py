"""Layers that multiply integers of 8 bits: what routines in 8 bits add up is exact, whatever the zero point."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto

from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.rounding import FACTOR, rounding_of
from sartor.codegen.ir.variants.routine import Implementation, Variant, variants_of
from sartor.codegen.kernels.isa.multipliers import INTEGER_DOTS
from sartor.codegen.mlir.machine import machine_of
from sartor.codegen.routines import ROUTINES
from sartor.runtime.driver.amx import unusable
from sartor.runtime.driver.signature import Array
from sartor.tuning.calibration.quantised_range import QuantisedRange
from tests.codegen.routines.harness import Found, Subject, layers, load
from tests.codegen.routines.narrow import run_stored
from tests.plugin.onnx_model.builders import FLOAT, model, node

HOST = Target.create("cpu", "host")
UNSIGNED, SIGNED = QuantisedRange(1.0, -128, "int8"), QuantisedRange(1.0, 0, "int8")
WHOLE_NUMBERS = [routine for routine in ROUTINES if routine.traits.needs_run_time_ranges]
CPUS = ["host", "cascadelake", "x86-64-v3"]


def _weights(*shape: int) -> Array:
    numbers = np.random.default_rng(len(shape)).integers(-128, 127, shape, endpoint=True)
    return numbers.astype(np.float32)


def _model() -> ModelProto:
    """A product and convolutions of odd sizes, each less what a zero point of run time adds."""
    nodes = [
        node("MatMul", ["a", "w1"], ["p1"], name="product"),
        node("Sub", ["p1", "zeros1"], ["c1"], name="centre1"),
        node("Mul", ["c1", "scale"], ["s1"], name="scaled1"),
        node("Add", ["s1", "residual"], ["y1"], name="added1"),
        node("Conv", ["b", "w2"], ["p2"], name="padded", pads=[1, 0, 2, 1]),
        node("Sub", ["p2", "zeros2"], ["y2"], name="centre2"),
        node("Conv", ["b", "w3"], ["p3"], name="strided", strides=[2, 3]),
        node("Sub", ["p3", "zeros3"], ["y3"], name="centre3"),
    ]
    inputs = {
        **{"a": (7, 37), "zeros1": (19,), "scale": (), "residual": (7, 19), "b": (1, 9, 11, 10)},
        **{"zeros2": (1, 21, 12, 9), "zeros3": (1, 5, 1, 1)},
    }
    constants = {"w1": _weights(37, 19), "w2": _weights(21, 9, 3, 3), "w3": _weights(5, 9, 1, 1)}
    return model(nodes, [(name, shape, FLOAT) for name, shape in inputs.items()], ["y1", "y2", "y3"], constants)


@pytest.fixture(scope="module")
def found() -> Found:
    formed = layers({"whole": _model})
    return {layer.name: (layer, weights) for layer, weights in formed}


def _implementations(layer: Layer, target: Target) -> dict[str, Implementation]:
    """Candidate 0 and the first variant of each routine that this machine can run."""
    stock = ROUTINES[0].build(layer.task, {}, target)
    assert isinstance(stock, Implementation)
    kept = {"stock": stock}
    for routine in WHOLE_NUMBERS:
        variants = [variant for variant in variants_of(routine, layer.task, target) if isinstance(variant, Variant)]
        kept |= {variant.descriptor: variant.implementation for variant in variants[:1]}
    return {name: each for name, each in kept.items() if not unusable(each.needs)}


def _features(target: Target) -> set[str]:
    machine = machine_of(target)
    return {feature for feature in machine.features if feature.startswith(("sse", "avx", "fma"))}


def _inputs(subject: Subject, numbers: QuantisedRange) -> list[Array]:
    """Integers throughout, so that candidate 0 is exact too."""
    random, limits = np.random.default_rng(3), numbers.limits
    return [
        random.integers(int(limits[0]), int(limits[1]), each.shape, endpoint=True).astype(np.float32)
        for each in subject.task.inputs
    ]


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("numbers", [UNSIGNED, SIGNED], ids=["uint8", "int8"])
def test_sums_are_exact(found: Found, cpu: str, numbers: QuantisedRange) -> None:
    target = Target.create("cpu", cpu)
    if missing := _features(target) - _features(HOST):
        pytest.skip(f"this CPU has no {', '.join(sorted(missing))}")
    names = [name for name in found if name in ("product", "padded", "strided")]
    subjects = {
        name: Subject(found[name][0], found[name][1], _implementations(found[name][0], target)) for name in names
    }
    assert all(len(each.implementations) > 1 for each in subjects.values())
    program = load(subjects, target)
    for name, subject in subjects.items():
        inputs = _inputs(subject, numbers)
        expected = run_stored(program, subject, "stock", inputs, {})
        assert np.abs(expected).max() > 1000
        for each, code in subject.implementations.items():
            result = run_stored(program, subject, each, inputs, dict.fromkeys(code.ranges, numbers))
            np.testing.assert_array_equal(result, expected, f"{name} {each}")


def test_only_what_is_multiplied_is_stored_in_8_bits(found: Found) -> None:
    layer, _ = found["product"]
    codes = _implementations(layer, Target.create("cpu", "x86-64-v3"))
    (code,) = (each for name, each in codes.items() if name.startswith("cpu:i8/matmul.whole_product"))
    assert sorted(map(str, code.inputs)) == ["cpu:f32@nd", "cpu:f32@nd", "cpu:f32@nd", "cpu:i8@nd"]
    assert list(map(str, code.outputs)) == ["cpu:f32@nd"]


def _quantiser() -> ModelProto:
    nodes = [
        node("Div", ["x", "scale"], ["divided"], name="divide"),
        node("Round", ["divided"], ["rounded"], name="round"),
        node("Add", ["rounded", "zero"], ["shifted"], name="shift"),
        node("Clip", ["shifted", "least", "most"], ["y"], name="clip"),
    ]
    limits = {"least": np.float32(0), "most": np.float32(255)}
    return model(nodes, [("x", (3, 5, 37), FLOAT), ("scale", (), FLOAT), ("zero", (), FLOAT)], ["y"], limits)


def test_results_alone_are_stored_in_8_bits() -> None:
    ((layer, weights),) = layers({"quantiser": _quantiser})
    subject = Subject(layer, weights, _implementations(layer, HOST))
    assert {name.partition("{")[0] for name in subject.implementations} == {
        *("stock", "cpu:i8/block.stock_to_whole", "cpu:i8/block.rowwise_to_whole")
    }
    program = load({layer.name: subject}, HOST)
    drawn = np.random.default_rng(4).uniform(-3, 3, (3, 5, 37)).astype(np.float32)
    given = {(3, 5, 37): drawn, (): np.float32(6 / 255)}
    inputs = [np.asarray(given[each.shape], np.float32) for each in layer.task.inputs]
    inputs[-1] = np.asarray(127, np.float32)
    expected = run_stored(program, subject, "stock", inputs, {})
    assert len(np.unique(expected)) > 100
    for name, code in subject.implementations.items():
        assert code.ranges == (() if name == "stock" else (None,))
        result = run_stored(program, subject, name, inputs, dict.fromkeys(code.ranges, UNSIGNED))
        np.testing.assert_array_equal(result, expected, name)


CALIBRATED = [each for each in ROUTINES if each.traits.rounds_factor]
# Steps that are no powers of two, and a zero point at the end of the range.
SKEWED = QuantisedRange(0.37, -128, "int8")


@pytest.mark.skipif(INTEGER_DOTS.refusal(machine_of(HOST)) is not None, reason="the CPU does not multiply 8 bits")
@pytest.mark.parametrize("beyond", [False, True])
def test_a_factor_in_8_bits_beside_outliers_in_f32(found: Found, beyond: bool) -> None:
    """Numbers at both ends of the range by the largest weights, some beyond it; the residual is far beyond it."""
    layer, weights = found["product"]
    offered = [variant for routine in CALIBRATED for variant in variants_of(routine, layer.task, HOST)]
    variants = [each for each in offered if isinstance(each, Variant)]
    assert variants
    assert {rounding_of(variant) for variant in variants} == {FACTOR}
    extreme = {name: np.where(weight > 0, 127, -127).astype(np.float32) for name, weight in weights.items()}
    stock = ROUTINES[0].build(layer.task, {}, HOST)
    assert isinstance(stock, Implementation)
    subject = Subject(
        layer, extreme, {variant.descriptor: variant.implementation for variant in variants} | {"stock": stock}
    )
    program, random = load({layer.name: subject}, HOST), np.random.default_rng(8)
    slot = next(index for index, each in enumerate(layer.task.inputs) if each.shape == (7, 37))
    inputs = [(1000 * random.standard_normal(each.shape)).astype(np.float32) for each in layer.task.inputs]
    least, most = (float(SKEWED.dequantise(np.array(each, np.int8))) for each in (-128, 127))
    inputs[slot] = random.choice(np.array([least, most], np.float32), (7, 37))
    given = list(inputs)
    if beyond:
        given[slot] = np.where(inputs[slot] == np.float32(most), np.float32(1e9), np.float32(-1e9))
    expected = run_stored(program, subject, "stock", inputs, {})
    # What only rounding of sums may change; a number that is off by a step changes results by 127 steps.
    allowed = 1e-5 * np.abs(expected).max()
    for name in set(subject.implementations) - {"stock"}:
        result = run_stored(program, subject, name, given, {slot: SKEWED})
        assert np.abs(result - expected).max() < allowed, name
    shifted = [np.nextafter(each, np.float32(0)) if index == slot else each for index, each in enumerate(inputs)]
    shifted[slot] = np.where(inputs[slot] == np.float32(most), np.float32(most - SKEWED.scale), inputs[slot])
    wrong = run_stored(program, subject, name, shifted, {slot: SKEWED})
    assert np.abs(wrong - expected).max() > 100 * allowed
