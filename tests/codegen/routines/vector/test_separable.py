"""A fused separable convolution computes what candidate 0 computes, whatever the sizes of layers, bands and tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from sartor.codegen.ir.layer import Fusion, Task
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Rejected, Variant, choices_of, integer, variants_of
from sartor.codegen.kernels.windows.separable import SCRATCH_BYTES
from sartor.codegen.mlir.machine import machine_of
from sartor.codegen.routines import FUSED_ROUTINES
from sartor.codegen.routines.vector.separable import FusedSeparable
from sartor.codegen.subgraphs.fusion import fuse
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import Array
from sartor.runtime.module import open_module
from sartor.tuning.records.hardware import host
from tests.codegen.routines.harness import Subject, compiled, fused_layers, load, relative_errors
from tests.codegen.routines.separable_cases import EXTREME, REFUSED, refused_pair, separable_cases
from tests.thorough import tried

Found = Mapping[str, tuple[Fusion, Mapping[str, Array]]]

HOST = Target.create("cpu")
AVX2 = Target.create("cpu", "x86-64-v3")
NEON = Target.create("cpu", "aarch64:neoverse-n1")
STOCK = FUSED_ROUTINES[0]
KERNELS = [each for each in FUSED_ROUTINES if isinstance(each, FusedSeparable)]
BY_NAME = {each.name: each for each in KERNELS}
CASES = separable_cases().names

# Further parameter sets are tried on these, the first one on the others.
THOROUGH = ("even", "batch3_stride3")
FOR_AVX2 = ("batch3_stride3", "kernel5", "dilated", "one_pixel", "residual", "excited")
FOR_NEON = ("batch3", "kernel1x3", "first_residual")

# Sums in another order.
MAX_ERROR = 1e-5


def _variants(case: str, task: Task, target: Target, config: pytest.Config | None = None) -> dict[str, Implementation]:
    """Candidate 0 and what the kernel routines offer, of which a ``config`` chooses."""
    stock = STOCK.build(task, {}, target)
    assert isinstance(stock, Implementation)
    found = {"stock": stock}
    for routine in KERNELS:
        variants = [each for each in variants_of(routine, task, target) if isinstance(each, Variant)]
        kept = variants[:1]
        if config is not None and case in THOROUGH:
            kept = tried(variants, THOROUGH.index(case), config)
        found |= {each.descriptor.partition(".")[2]: each.implementation for each in kept}
    return found


def _extremes(case: str, task: Task) -> dict[str, Implementation]:
    found: dict[str, Implementation] = {}
    for name, choices in EXTREME.get(case, {}).items():
        for parameters in choices:
            built = BY_NAME[name].build(task, parameters, HOST)
            assert isinstance(built, Implementation), (name, parameters, built)
            found[f"{name}{sorted(parameters.items())}"] = built
    return found


def _wrong(program: Program, subject: Subject) -> dict[str, float]:
    return {name: error for name, error in relative_errors(program, subject).items() if not error <= MAX_ERROR}


@pytest.fixture(scope="module")
def found() -> Found:
    fusions = fused_layers({"separable": lambda: separable_cases().model()})
    return {fusion.members[0].partition(".")[0]: (fusion, weights) for fusion, weights in fusions}


@pytest.fixture(scope="module")
def subjects(found: Found, pytestconfig: pytest.Config) -> dict[str, Subject]:
    return {
        case: Subject(
            fusion.layer,
            weights,
            _variants(case, fusion.layer.task, HOST, pytestconfig) | _extremes(case, fusion.layer.task),
        )
        for case, (fusion, weights) in found.items()
    }


@pytest.fixture(scope="module")
def program(subjects: dict[str, Subject]) -> Program:
    return load(subjects, HOST)


def _for(found: Found, cases: Sequence[str], target: Target) -> dict[str, Subject]:
    chosen = {case: found[case] for case in cases}
    return {
        case: Subject(fusion.layer, weights, _variants(case, fusion.layer.task, target))
        for case, (fusion, weights) in chosen.items()
    }


def test_every_case_is_a_fusion_of_its_two_layers(found: Found) -> None:
    assert {case: fusion.members for case, (fusion, _) in found.items()} == {
        case: (f"{case}.apart", f"{case}.joined") for case in CASES
    }


@pytest.mark.parametrize("case", CASES)
def test_every_kernel_computes_the_layers(case: str, subjects: dict[str, Subject], program: Program) -> None:
    subject = subjects[case]
    assert len(subject.implementations) > 1
    assert _wrong(program, subject) == {}


def test_images_lie_in_the_layout_of_the_routine(subjects: dict[str, Subject]) -> None:
    lanes = machine_of(HOST).lanes
    layouts = {"stock": "nchw", "separable": "nhwc", "separable_blocked": f"nchw{lanes}c"}
    for name, code in subjects["residual"].implementations.items():
        layout = layouts["".join(each for each in name if each.isalpha() or each == "_").partition("band")[0]]
        schema = Schema("cpu", "f32", layout)
        assert (code.inputs, code.outputs) == ((schema, schema), (schema,))


@pytest.mark.skipif(not {"avx2", "fma"} <= set(host().features), reason="this CPU has no AVX2")
def test_kernels_for_avx2_compute_the_layers(found: Found) -> None:
    chosen = _for(found, FOR_AVX2, AVX2)
    program = load(chosen, AVX2)
    assert {name: _wrong(program, each) for name, each in chosen.items()} == {name: {} for name in chosen}


def test_kernels_for_aarch64_compile(found: Found) -> None:
    module = open_module(compiled(_for(found, FOR_NEON, NEON), NEON))
    assert len(module.functions) >= 2 * len(FOR_NEON)


def test_blocks_want_channels_that_fill_them(found: Found) -> None:
    (answer,) = variants_of(BY_NAME["separable_blocked"], found["odd"][0].layer.task, AVX2)
    assert answer == Rejected("its channels do not divide into vectors of 8")


def test_another_device_has_no_kernels(found: Found) -> None:
    for routine in KERNELS:
        (answer,) = variants_of(routine, found["even"][0].layer.task, Target.create("vulkan"))
        assert answer == Rejected("the kernel is not for vulkan")


@pytest.mark.parametrize("case", REFUSED)
def test_other_pairs_are_refused_with_a_reason(case: str) -> None:
    make, reason = REFUSED[case]
    ((fusion, _),) = fused_layers({case: make})
    for routine in KERNELS:
        for answer in variants_of(routine, fusion.layer.task, AVX2):
            assert answer == Rejected(reason)


def test_what_is_only_added_to_the_second_result_is_refused(found: Found) -> None:
    first, second = (each.task for each in found["residual"][0].layer.task.stages)
    for answer in variants_of(BY_NAME["separable"], fuse(first, second, 1), HOST):
        assert answer == Rejected("the second stage does not multiply the result of the first")


def test_one_layer_is_no_pair(found: Found) -> None:
    for stage in found["even"][0].layer.task.stages:
        (answer,) = variants_of(BY_NAME["separable"], stage.task, HOST)
        assert answer == Rejected("no depthwise convolution with an unpadded 1x1 convolution after it")


@pytest.mark.parametrize(
    ("case", "band", "reason"),
    [
        ("even", 5, "an image of 12 rows does not divide into row strips of 5"),
        ("even", 24, "an image of 12 rows does not divide into row strips of 24"),
        ("large", 12, "a row strip of 12 rows exceeds the scratch"),
    ],
)
def test_a_band_that_does_not_fit_is_refused(found: Found, case: str, band: int, reason: str) -> None:
    fusions = {each: fusion for each, (fusion, _) in found.items()}
    if case == "large":
        ((fusions[case], _),) = fused_layers({case: lambda: refused_pair((1, 128, 12, 12))})
    sizes = {**EXTREME["even"]["separable"][0], "band": band}
    assert BY_NAME["separable"].build(fusions[case].layer.task, sizes, HOST) == Rejected(reason)


def test_bands_are_as_large_as_the_scratch_allows() -> None:
    """128 channels of 12 x 12 pixels are one and a half scratches."""
    ((fusion, _),) = fused_layers({"large": lambda: refused_pair((1, 128, 12, 12))})
    found = choices_of(BY_NAME["separable"], fusion.layer.task, AVX2)
    assert not isinstance(found, Rejected)
    assert {integer(each["band"]) * 12 * 128 * 4 <= SCRATCH_BYTES for each in found} == {True}
