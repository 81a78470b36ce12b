"""Kernels of f32 by filters that are stored in 8 bits, with a scale for each channel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.packing import Packing, Quantise
from sartor.codegen.ir.schema import QUANTISED
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.rounding import WEIGHTS, rounding_of
from sartor.codegen.ir.variants.routine import Rejected, Variant, variants_of
from sartor.codegen.routines import LOW_PRECISION, ROUTINES
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import Array
from tests.codegen.routines.harness import Found, Subject, layers, load, relative_errors, run

HOST = Target.create("cpu")
CASES = ("conv3x3_residual", "conv3x3_odd_channels", "conv1x1_residual", "linear_gelu", "linear_one_row", "gemm")
STORING = [each for each in ROUTINES if each.traits.weights == QUANTISED]


def _variants(layer: Layer) -> dict[str, Variant]:
    """The first variants of each routine, all of one layer."""
    most = None if layer.name == CASES[0] else 2
    found = [
        each
        for routine in STORING
        for each in [one for one in variants_of(routine, layer.task, HOST) if isinstance(one, Variant)][:most]
    ]
    return {each.descriptor: each for each in found}


def _subject(layer: Layer, weights: Mapping[str, Array]) -> Subject:
    (stock,) = (each for each in variants_of(ROUTINES[0], layer.task, HOST) if isinstance(each, Variant))
    code = {name: each.implementation for name, each in _variants(layer).items()}
    return Subject(layer, weights, {"stock": stock.implementation, **code})


def _whole(name: str, weight: Array) -> Array:
    """Filters that are multiples of 1/128 by integers of 8 bits, in each channel along any axis up to 127."""
    if weight.ndim < 2:
        return weight
    numbers = np.random.default_rng(len(name)).integers(-127, 128, weight.shape)
    numbers[0] = numbers[:, 0] = 127
    return (numbers / 128).astype(weight.dtype)


@pytest.fixture(scope="module")
def found_layers() -> Found:
    found = layers()
    return {layer.name: (layer, weights) for layer, weights in found if layer.name in CASES}


@pytest.fixture(scope="module")
def subjects(found_layers: Found) -> dict[str, Subject]:
    return {name: _subject(*each) for name, each in found_layers.items()}


@pytest.fixture(scope="module")
def program(subjects: dict[str, Subject]) -> Program:
    return load(subjects, HOST)


@pytest.mark.parametrize("case", CASES)
def test_filters_of_8_bits_are_multiplied_as_they_are(
    case: str, subjects: dict[str, Subject], program: Program
) -> None:
    """Only the order of sums differs."""
    subject = subjects[case]
    exact = Subject(
        subject.layer, {name: _whole(name, each) for name, each in subject.weights.items()}, subject.implementations
    )
    errors = relative_errors(program, exact)
    assert len(errors) > 1
    assert {name: error for name, error in errors.items() if error > 1e-5} == {}


@pytest.mark.parametrize("case", CASES)
def test_other_filters_are_rounded_to_a_step_of_their_channel(
    case: str, subjects: dict[str, Subject], program: Program
) -> None:
    """The result is that of stock code with filters that were rounded before."""
    subject, inputs = subjects[case], subjects[case].inputs()
    exact = run(program, subject, "stock", inputs)
    for name, code in subject.implementations.items():
        if name == "stock":
            continue
        weights = zip(subject.layer.weights, code.packings, strict=True)
        rounded = {each: _rounded(subject.weights[each], packing) for each, packing in weights}
        expected = run(program, replace(subject, weights=rounded), "stock", inputs)
        found = run(program, subject, name, inputs)
        assert np.abs(found - expected).max() < 1e-5 * np.abs(expected).max(), name
        assert np.abs(expected - exact).max() > 1e-4 * np.abs(exact).max()


def _rounded(weight: Array, packing: Packing) -> Array:
    """What a packed weight stands for: multiples of a 127th of the largest filter of each channel."""
    shaped = weight
    for step in packing.steps:
        if isinstance(step, Quantise):
            others = tuple(axis for axis in range(shaped.ndim) if axis != step.axis)
            unit = np.abs(shaped).max(axis=others, keepdims=True) / 127
            rounded: Array = (np.rint(shaped / unit) * unit).astype(weight.dtype)
            return rounded.reshape(weight.shape)
        shaped = step.apply(shaped)
    return weight


def test_they_read_a_quarter_of_the_bytes_and_a_scale_for_each_channel(subjects: dict[str, Subject]) -> None:
    subject = subjects["linear_gelu"]
    for name, code in subject.implementations.items():
        sizes = [packing.type_of(each) for packing, each in zip(code.packings, subject.task.weights, strict=True)]
        if name != "stock":
            (filters,) = (each for each in sizes if each.dtype == "i8")
            logical = max(each.elements for each in subject.task.weights)
            assert logical <= filters.bytes < logical * 2


def test_activations_and_results_keep_their_type(subjects: dict[str, Subject]) -> None:
    for subject in subjects.values():
        for code in subject.implementations.values():
            assert {each.dtype for each in (*code.inputs, *code.outputs)} == {"f32"}
            assert code.ranges == ()


def test_they_are_variants_of_8_bits_of_which_only_filters_are_rounded(found_layers: Found) -> None:
    assert STORING
    assert set(STORING) <= set(LOW_PRECISION[QUANTISED])
    for layer, _ in found_layers.values():
        variants = _variants(layer).values()
        assert {(each.dtype, rounding_of(each)) for each in variants} == {(QUANTISED, WEIGHTS)}
        packings: list[Packing] = [one for each in variants for one in each.implementation.packings]
        assert any(isinstance(step, Quantise) for packing in packings for step in packing.steps)


def test_a_product_of_two_activations_has_no_filters_to_store() -> None:
    (attention,) = (layer for layer, _ in layers() if layer.name == "attention")
    products = (each for each in STORING if each.name.startswith("product"))
    refused = [answer for each in products for answer in variants_of(each, attention.task, HOST)]
    assert all(isinstance(each, Rejected) and "not a weight" in each.reason for each in refused)
