"""Kernels in f32 compute layers of f16, from weights in f16, as candidate 0 does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Rejected, Variant, variants_of
from sartor.codegen.routines import ROUTINES
from sartor.codegen.routines.storing.half import Half
from sartor.runtime.driver.iree_runtime import Program
from tests.codegen.routines.harness import Subject, layers, load, relative_errors
from tests.codegen.routines.layer_cases import Cases, Follower, in_half

HOST = Target.create("cpu")
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
def subjects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Subject]:
    found = layers(tmp_path_factory.mktemp("cases"), {"half": lambda: in_half(_cases().model())})
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


def test_they_are_for_cpus_and_for_f16(subjects: Mapping[str, Subject], tmp_path: Path) -> None:
    wide = [layer for layer, _ in layers(tmp_path, {"f32": lambda: _cases().model()})]
    for routine in HALVES:
        for layer in wide:
            assert all(isinstance(each, Rejected) for each in variants_of(routine, layer.task, HOST))
        for subject in subjects.values():
            answers = variants_of(routine, subject.task, replace(HOST, device="cuda", architecture="sm_80"))
            assert all(isinstance(each, Rejected) for each in answers)
