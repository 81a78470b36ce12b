"""Kernels in f32 compute layers of f16, from weights in f16, as candidate 0 does."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Rejected, Variant, variants_of
from sartor.codegen.routines import ROUTINES
from sartor.codegen.routines.storing.half import Half
from sartor.runtime.driver.program import Program
from tests.codegen.routines.harness import Subject, layers, load, relative_errors
from tests.codegen.routines.layer_cases import Cases, Follower, in_half

HOST, CUDA, VULKAN = Target.create("cpu"), Target.create("cuda", "sm_80"), Target.create("vulkan", "ampere")
LLVMPIPE = Target.create("vulkan")
HALVES = [each for each in ROUTINES if isinstance(each, Half)]
# Candidate 0 rounds to f16 after every operation, Winograd's sums have terms larger than their result.
MAX_ERROR, WINOGRAD_ERROR = 2 * 2.0**-10, 4 * 2.0**-10
CONVOLUTION = {"half_direct", "half_direct_blocked"}
EXPECTED = {
    "conv3x3": {*CONVOLUTION, "half_fused_winograd", "half_fused_winograd_blocked"},
    "conv1x1": CONVOLUTION,
    "conv_odd": {"half_direct"},
    "depthwise": {"half_window", "half_window_blocked"},
    "max_pool": {"half_window", "half_window_blocked"},
    "joined": {"half_join", "half_join_blocked"},
    "enlarged": {"half_join_enlarged", "half_join_enlarged_blocked"},
    "few": {"half_direct", "half_few", "half_few_blocked", "half_few_planes"},
    "linear": {"half_product"},
    "one_row": {"half_product"},
}


def _cases() -> Cases:
    cases = Cases()
    cases.convolution("conv3x3", (1, 32, 20, 18), 64)
    cases.convolution("conv1x1", (1, 32, 6, 6), 64, (1, 1), residual=True)
    cases.convolution("conv_odd", (1, 19, 7, 9), 19, (1, 1), activation="Sigmoid")
    cases.convolution("depthwise", (1, 32, 10, 10), 32, groups=32)
    cases.pool("max_pool", "MaxPool", (1, 16, 11, 11), (1, 16, 6, 6), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    cases.joined("joined", (1, 48, 6, 5), (16, 32))
    cases.enlarged("enlarged", (1, 32, 3, 5), (2, 2), [16])
    cases.convolution("few", (1, 32, 9, 20), 3)
    cases.product("linear", (6, 48), (48, 64), followers=[Follower("Relu")])
    cases.product("one_row", (1, 64), (64, 40))
    return cases


def _variants(layer: Layer) -> dict[str, Implementation]:
    """The first variant of each routine for f16 that applies, and candidate 0."""
    code: dict[str, Implementation] = {}
    for routine in (ROUTINES[0], *HALVES):
        found = [each for each in variants_of(routine, layer.task, HOST) if isinstance(each, Variant)]
        for each in found[:1]:
            code[routine.name] = each.implementation
    return code


@pytest.fixture(scope="module")
def subjects() -> dict[str, Subject]:
    found = layers({"half": lambda: in_half(_cases().model())})
    return {layer.name: Subject(layer, weights, _variants(layer)) for layer, weights in found}


@pytest.fixture(scope="module")
def program(subjects: Mapping[str, Subject]) -> Program:
    return load(subjects, HOST)


@pytest.mark.parametrize("case", EXPECTED)
def test_they_compute_what_candidate_0_computes(case: str, subjects: Mapping[str, Subject], program: Program) -> None:
    errors = relative_errors(program, subjects[case])
    assert set(errors) == {"stock", *EXPECTED[case]}
    bounds = {name: WINOGRAD_ERROR if "winograd" in name else MAX_ERROR for name in errors}
    assert {name: error for name, error in errors.items() if not error <= bounds[name]} == {}


def test_values_keep_their_type_in_memory(subjects: Mapping[str, Subject]) -> None:
    for subject in subjects.values():
        for name, code in subject.implementations.items():
            assert {each.dtype for each in (*code.inputs, *code.outputs)} == {"f16"}, name
            filters = [
                packing.type_of(each).dtype
                for packing, each in zip(code.packings, subject.task.weights, strict=True)
                if each.dtype == "f16"
            ]
            assert set(filters) <= {"f32" if "winograd" in name else "f16"}, name


def test_they_are_for_f16() -> None:
    wide = [layer for layer, _ in layers({"f32": lambda: _cases().model()})]
    for routine in HALVES:
        for layer in wide:
            for target in (HOST, CUDA, VULKAN):
                assert all(isinstance(each, Rejected) for each in variants_of(routine, layer.task, target))


@pytest.mark.parametrize(
    ("case", "target", "expected"),
    [
        ("conv3x3", CUDA, {"half_implicit"}),
        ("depthwise", CUDA, {"half_thread_window"}),
        ("max_pool", CUDA, {"half_thread_window"}),
        ("linear", CUDA, {"half_implicit"}),
        ("conv3x3", VULKAN, {"half_direct"}),
        ("depthwise", VULKAN, {"half_window"}),
        ("linear", VULKAN, {"half_product"}),
        ("joined", VULKAN, {"half_join"}),
        ("conv3x3", LLVMPIPE, {"half_direct"}),
        ("depthwise", LLVMPIPE, {"half_window"}),
        ("linear", LLVMPIPE, {"half_product"}),
    ],
)
def test_gpus_have_their_own(case: str, target: Target, expected: set[str], subjects: Mapping[str, Subject]) -> None:
    found = [one for each in HALVES for one in variants_of(each, subjects[case].task, target)]
    variants = [each for each in found if isinstance(each, Variant)]
    assert {each.routine for each in variants} == expected
    for each in variants:
        code = each.implementation
        assert {one.dtype for one in (*code.inputs, *code.outputs)} == {"f16"}
        # Values keep the model's type, so that no lower precision has to be allowed.
        assert each.traits.precision is None
