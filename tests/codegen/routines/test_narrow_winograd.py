"""Winograd's method with images in bf16 or 8 bits: in f32 as good as candidate 0, and otherwise as good as it can be.

Of small integers, and filters that are multiples of four, tiles of 4x4 pixels are encoded without rounding, so
that results are exact. Other numbers and tiles are rounded, and the transforms make more of that.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import ModelProto

from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Rejected, Variant, choices_of, variants_of
from sartor.codegen.kernels.isa.multipliers import BFLOAT_DOTS, INTEGER_DOTS
from sartor.codegen.mlir.machine import machine_of
from sartor.codegen.routines import ROUTINES
from sartor.codegen.routines.vector.fused_winograd import FusedWinograd
from sartor.runtime.driver.signature import Array
from sartor.tuning.calibration.quantised_range import QuantisedRange
from tests.codegen.routines.harness import Found, Subject, layers, load, run
from tests.codegen.routines.kernel_cases import kernel_model
from tests.codegen.routines.layer_cases import Cases
from tests.codegen.routines.narrow import rounded, rounded_subject, run_stored, wrong

HOST = Target.create("cpu", "host")
STOCK = ROUTINES[0]
IN_FLOATS = FusedWinograd(storage="bf16")
IN_DOTS = FusedWinograd("fused_winograd_dots", storage="bf16", element=BFLOAT_DOTS)
IN_DOTS_OF_8 = replace(IN_DOTS, storage="i8")
IN_BYTES = FusedWinograd("fused_winograd_bytes", storage="i8", element=INTEGER_DOTS)
CASES = ("wide_padding", "batch3", "images3", "by_image", "one_row", "one_pixel3x3", "filter2x2", "filter1x7")
EXACT = ("wide_padding", "batch3", "images3", "one_row", "one_pixel3x3")
SIZES = {"height": 2, "width": 2, "columns": 3, "vectors": 2, "block": 6, "groups": 2, "panels": 1, "unroll": 2}
# Off by so much of the largest result with tiles of 6x6 pixels of the image, by an experiment with random numbers 2%.
MOST = 4e-2
# By an experiment 1.8% with 8 bits, where they make it 1% directly.
MOST_IN_BYTES = 2.5e-2

needs_dots = pytest.mark.skipif(BFLOAT_DOTS.refusal(machine_of(HOST)) is not None, reason="this CPU has no AVX512_BF16")
needs_bytes = pytest.mark.skipif(
    INTEGER_DOTS.refusal(machine_of(HOST)) is not None, reason="this CPU has no VNNI in vectors of 64 bytes"
)


def _wide_model() -> ModelProto:
    cases = Cases()
    cases.convolution("wide", (1, 64, 14, 14), 64)
    return cases.model()


@pytest.fixture(scope="module")
def found() -> Found:
    models = {"kernels": kernel_model, "wide": _wide_model}
    return {layer.name: (layer, weights) for layer, weights in layers(models)}


def _stock(layer: Layer, target: Target) -> Implementation:
    built = STOCK.build(layer.task, {}, target)
    assert isinstance(built, Implementation)
    return built


def _built(routine: FusedWinograd, layer: Layer, target: Target) -> Implementation:
    built = routine.build(layer.task, dict(SIZES), target)
    assert isinstance(built, Implementation), (layer.name, built)
    return built


def _whole_subjects(found: Found, routine: FusedWinograd) -> dict[str, Subject]:
    """Layers whose filters are encoded without rounding."""
    random = np.random.default_rng(3)
    subjects = {}
    for name in EXACT:
        layer, weights = found[name]
        whole = {key: 4 * random.integers(-2, 3, weight.shape).astype(weight.dtype) for key, weight in weights.items()}
        subjects[name] = Subject(layer, whole, {"stock": _stock(layer, HOST), "own": _built(routine, layer, HOST)})
    return subjects


def _whole_inputs(subject: Subject) -> list[Array]:
    random = np.random.default_rng(4)
    return [random.integers(-2, 3, each.shape).astype(np.float32) for each in subject.task.inputs]


def test_in_floats_results_are_rounded_once(found: Found) -> None:
    subjects = {
        name: rounded_subject(
            Subject(
                *found[name], {"stock": _stock(found[name][0], HOST), "own": _built(IN_FLOATS, found[name][0], HOST)}
            ),
            "bf16",
        )
        for name in EXACT
    }
    program = load(subjects, HOST)
    assert {name: wrong(program, subject, "bf16") for name, subject in subjects.items()} == {
        name: {} for name in subjects
    }


@needs_dots
def test_whole_numbers_are_multiplied_exactly(found: Found) -> None:
    subjects = _whole_subjects(found, IN_DOTS)
    program = load(subjects, HOST)
    for name, subject in subjects.items():
        inputs = _whole_inputs(subject)
        expected = run(program, subject, "stock", inputs)
        assert np.abs(expected).max() > 50
        np.testing.assert_array_equal(run(program, subject, "own", inputs), rounded(expected, "bf16"), err_msg=name)


@pytest.mark.parametrize(
    "routine",
    [pytest.param(IN_DOTS_OF_8, marks=needs_dots), pytest.param(IN_BYTES, marks=needs_bytes)],
    ids=["dots", "bytes"],
)
def test_quantised_images_are_what_they_stand_for(found: Found, routine: FusedWinograd) -> None:
    """Padding is zero whatever the zero point, and results are within half a step."""
    subjects = _whole_subjects(found, routine)
    program = load(subjects, HOST)
    for name, subject in subjects.items():
        inputs = _whole_inputs(subject)
        expected = run(program, subject, "stock", inputs)
        assert np.abs(expected).max() > 50
        ranges: dict[int | None, QuantisedRange] = {
            index: QuantisedRange(1.0, 5 + index, "int8") for index in range(len(inputs))
        }
        ranges[None] = QuantisedRange.of(float(expected.min()), float(expected.max()))
        found_there = run_stored(program, subject, "own", inputs, ranges)
        np.testing.assert_allclose(found_there, expected, rtol=0, atol=0.501 * ranges[None].scale, err_msg=name)


@needs_bytes
def test_bytes_are_scaled_and_no_more(found: Found) -> None:
    """Whatever the zero point: that of images after a ReLU is the least number."""
    subjects = {
        name: Subject(
            *found[name], {"stock": _stock(found[name][0], HOST), "own": _built(IN_BYTES, found[name][0], HOST)}
        )
        for name in (*EXACT, "filter2x2", "by_image", "wide")
    }
    program = load(subjects, HOST)
    worst = {}
    for name, subject in subjects.items():
        inputs = [np.maximum(array, 0) if index == 0 else array for index, array in enumerate(subject.inputs())]
        expected = run(program, subject, "stock", inputs)
        ranges: dict[int | None, QuantisedRange] = {index: _range(array) for index, array in enumerate(inputs)}
        ranges[None] = _range(expected)
        off = run_stored(program, subject, "own", inputs, ranges) - expected
        worst[name] = float(np.abs(off).max() / np.abs(expected).max())
    assert max(worst.values()) < MOST_IN_BYTES, worst


def _range(array: Array) -> QuantisedRange:
    return QuantisedRange.of(float(array.min()), float(array.max()))


@needs_dots
def test_other_numbers_are_rounded_and_no_more(found: Found) -> None:
    target = replace(HOST, withheld=("amx-bf16",))
    subjects = {}
    for name in CASES:
        layer, weights = found[name]
        variants = [variant for variant in variants_of(IN_DOTS, layer.task, target) if isinstance(variant, Variant)]
        named = {variant.descriptor: variant.implementation for variant in variants}
        subjects[name] = Subject(layer, weights, {"stock": _stock(layer, target), **named})
    assert sum(len(each.implementations) > 1 for each in subjects.values()) > 2
    program = load(subjects, target)
    for name, subject in subjects.items():
        inputs = [rounded(array, "bf16") for array in subject.inputs()]
        expected = run(program, subject, "stock", inputs)
        for key in subject.implementations:
            off = np.abs(run(program, subject, key, inputs) - expected).max() / np.abs(expected).max()
            assert off < MOST, (name, key)


@pytest.mark.parametrize(
    ("cpu", "routine", "reason"),
    [
        ("sapphirerapids", IN_DOTS, "AMX gains more than this saves"),
        ("cascadelake", IN_DOTS, "the CPU has no avx512bf16"),
        ("sapphirerapids", IN_BYTES, "AMX gains more than this saves"),
        ("skylake-avx512", IN_BYTES, "the CPU has no avx512vnni"),
        ("alderlake", IN_BYTES, "the CPU has no avx512bw"),
    ],
)
def test_it_is_offered_where_it_pays(found: Found, cpu: str, routine: FusedWinograd, reason: str) -> None:
    layer, _ = found["wide"]
    assert choices_of(routine, layer.task, Target.create("cpu", cpu)) == Rejected(reason)
    assert not isinstance(choices_of(routine, layer.task, Target.create("cpu", "cooperlake")), Rejected)


def test_tiles_of_more_than_sums_and_differences_are_not_encoded_in_bytes(found: Found) -> None:
    target = Target.create("cpu", "cascadelake")
    offered = choices_of(IN_BYTES, found["wide"][0].task, target)
    assert not isinstance(offered, Rejected)
    assert {(each["height"], each["width"]) for each in offered} == {(2, 2)}
    refused = choices_of(IN_BYTES, found["filter1x7"][0].task, target)
    assert refused == Rejected("tiles of 4 pixels a side are too small for its filters")


@pytest.mark.parametrize(
    ("cpu", "size", "reason"),
    [
        ("cascadelake", 3, "tiles of 5x5 pixels are encoded by more than sums and differences"),
        ("alderlake", 2, "integers are encoded in vectors of 64 bytes"),
    ],
)
def test_other_kernels_over_bytes_are_refused(found: Found, cpu: str, size: int, reason: str) -> None:
    sizes = {**SIZES, "height": size, "width": size}
    assert IN_BYTES.build(found["wide"][0].task, sizes, Target.create("cpu", cpu)) == Rejected(reason)
