"""Kernels that widen filters from a narrower type give the bits of those that read them in f32."""

from __future__ import annotations

from collections.abc import Mapping

import ml_dtypes
import numpy as np
import pytest

from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.packing import Narrow
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Rejected, Routine, Variant, variants_of
from sartor.codegen.routines import ROUTINES
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import Array
from tests.codegen.routines.harness import Found, Subject, layers, load, run

HOST = Target.create("cpu")
TYPES: dict[str, type] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
CASES = ("conv3x3_residual", "conv3x3_odd_channels", "conv1x1_residual", "linear_gelu", "linear_one_row", "gemm")
NARROW = {f"{each.traits.precision or 'own'} {each.name}": each for each in ROUTINES if each.traits.weights in TYPES}


def _variants(layer: Layer, routine: Routine) -> dict[str, Variant]:
    """Variants of a routine by their parameters."""
    found = [each for each in variants_of(routine, layer.task, HOST) if isinstance(each, Variant)]
    return {str(each.parameters): each for each in found}


def _wide(narrow: Routine) -> Routine:
    """The routine that reads the same filters in f32."""
    name = narrow.name.replace("_by_bf16", "").replace("_by_f16", "")
    alike = (each for each in ROUTINES if each.name == name and each.traits.precision == narrow.traits.precision)
    return next(alike)


def _wide_name(narrow: str) -> str:
    """The name of the code that reads the same filters in f32, one for both narrow types."""
    return f"wide {narrow.replace('_by_bf16', '').replace('_by_f16', '')}"


def _subject(layer: Layer, weights: Mapping[str, Array]) -> Subject:
    """A layer with variants of each narrow routine, and those that read the same filters in f32."""
    code, most = {}, 2 if layer.name == CASES[0] else 1
    for name, routine in NARROW.items():
        same = _variants(layer, _wide(routine))
        for sizes, narrow in list(_variants(layer, routine).items())[:most]:
            code[f"{name} {sizes}"] = narrow.implementation
            code[_wide_name(f"{name} {sizes}")] = same[sizes].implementation
    short = {name: each.astype(TYPES["bf16"]).astype(np.float16).astype(each.dtype) for name, each in weights.items()}
    return Subject(layer, short, code)


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
def test_widened_filters_change_no_bit(case: str, subjects: dict[str, Subject], program: Program) -> None:
    subject = subjects[case]
    inputs = subject.inputs()
    narrow = [name for name in subject.implementations if not name.startswith("wide")]
    assert {name.split()[0] for name in narrow} == {"own", "f16", "bf16"}
    for name in narrow:
        expected = run(program, subject, _wide_name(name), inputs)
        assert np.array_equal(run(program, subject, name, inputs), expected), name


def test_they_read_half_of_the_bytes(subjects: dict[str, Subject]) -> None:
    subject = subjects["linear_gelu"]
    sizes = {
        name: [packing.type_of(each).bytes for packing, each in zip(code.packings, subject.task.weights, strict=True)]
        for name, code in subject.implementations.items()
    }
    (narrow,) = (name for name in sizes if name.startswith("own product_by_f16 "))
    assert max(sizes[narrow]) * 2 == max(sizes[_wide_name(narrow)])


def test_a_product_of_two_activations_has_no_filters_to_narrow() -> None:
    (attention,) = (layer for layer, _ in layers() if layer.name == "attention")
    products = (each for each in NARROW.values() if each.name.startswith("product"))
    refused = [answer for each in products for answer in variants_of(each, attention.task, HOST)]
    assert all(isinstance(each, Rejected) and "not a weight" in each.reason for each in refused)


@pytest.mark.parametrize(
    ("dtype", "numbers", "expected"),
    [
        ("f16", [1.0, -0.5, 0.333251953125], True),
        ("f16", [1.0, 1.0 + 2.0**-11], False),
        ("f16", [7e4], False),
        ("f16", [2.0**-24], True),
        ("bf16", [7e4], False),
        ("bf16", [2.0**100, -3.0], True),
        ("bf16", [1.0 + 2.0**-8], False),
    ],
)
def test_only_numbers_of_the_type_are_narrowed_without_loss(dtype: str, numbers: list[float], expected: bool) -> None:
    assert Narrow(dtype).is_exact(np.array(numbers, np.float32)) == expected
