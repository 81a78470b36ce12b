"""Our own kernels compute what ONNX Runtime computes, whatever the sizes of layers, tiles and vectors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Rejected, Variant, variants_of
from sartor.codegen.routines import ROUTINES, routines_for
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import Array
from sartor.runtime.module import open_module
from sartor.tuning.records.hardware import host
from tests.codegen.routines.harness import (
    Found,
    Subject,
    compiled,
    layers,
    load,
    relative_errors,
    results_by_onnx_runtime,
)
from tests.codegen.routines.kernel_cases import EXTREME, kernel_cases, kernel_model
from tests.emulated import EmulatedProgram, Emulator, emulator
from tests.importing import imported_model
from tests.thorough import in_turns, tried, with_each_routine

HOST = Target.create("cpu")
AVX2 = Target.create("cpu", "x86-64-v3")
NEON = Target.create("cpu", "aarch64:neoverse-n1")
EMULATOR = emulator()
# Steps that are written out if a CPU's instructions multiply by one element of a vector.
BY_ELEMENT = "unroll=4"
CASES = kernel_cases().names

KERNELS = (
    "direct",
    "direct_blocked",
    "product",
    "window",
    "window_blocked",
    "single",
    "single_blocked",
    "single_planes",
    "few",
    "few_blocked",
    "few_planes",
    "fused_winograd",
    "fused_winograd_blocked",
    "join",
    "join_blocked",
    "join_slices",
    "join_slices_blocked",
    "join_enlarged",
    "join_enlarged_blocked",
    "rowwise",
)
BY_NAME = {each.name: each for each in routines_for(()) if each.name in KERNELS}

# Further parameter sets are tried on these, the first one on the others.
THOROUGH = ("several", "panels", "squeeze_excite", "apart_stride3", "batch_by_weight", "joined_normalized")
FOR_OTHER_CPUS = (
    "sliced_channels",
    "sliced_thirds",
    "enlarged_unevenly",
    "single",
    "single_stride3",
    "single_of_one_stride2",
    "single_pixel",
    "several_pixels",
    "several_stride3",
    "several_of_three",
    "larger_kernel_odd",
    "wide_padding",
    "uneven_window",
    "batch3",
    "images3",
    "panels",
    "prime1x1",
    "one_pixel1x1",
    "squeeze_excite",
    "apart_stride3",
    "apart_longest_kernel",
    "average32x32",
    "max_uneven_padding",
    "batch_by_weight",
    "odd",
    "many",
    "joined_odd",
    "softmax_image",
    "softmax_row",
)
# Of these, those that run under emulation.
EMULATED = (
    "sliced_thirds",
    "enlarged_unevenly",
    "single_pixel",
    "single_stride3",
    "several_pixels",
    "uneven_window",
    "batch3",
    "prime1x1",
    "squeeze_excite",
    "apart_stride3",
    "odd",
    "joined_odd",
    "softmax_row",
)

# Sums in another order; Winograd's sums have terms larger than their result.
MAX_ERROR, MAX_WINOGRAD_ERROR = 1e-5, 1e-3

# Why no kernel computes the others.
REFUSED = {
    "average_of_what_is_there": "linalg.index cannot be emitted on vectors",
    "depth1": "the layer does not have exactly one reduction",
    "column1": "the root's operands are not the LHS and the RHS of a matrix product",
    "one_number": "the root's operands are not the LHS and the RHS of a matrix product",
    "softmax_one": "rows of the result have at most one element",
}


def _variants(layer: Layer, target: Target, config: pytest.Config | None = None) -> dict[str, Implementation]:
    """What the kernel routines offer, of which a ``config`` chooses."""
    found: dict[str, Implementation] = {}
    for routine in BY_NAME.values():
        variants = [each for each in variants_of(routine, layer.task, target) if isinstance(each, Variant)]
        kept = variants[:1]
        if config is not None and layer.name in THOROUGH:
            kept = tried(variants, THOROUGH.index(layer.name), config)
        # For AArch64 also register tiles whose factors are elements of vectors.
        by_element = [each for each in variants[1:] if BY_ELEMENT in each.descriptor]
        kept = kept + by_element[: target == NEON and layer.name in EMULATED]
        found |= {each.descriptor.partition(".")[2]: each.implementation for each in kept}
    return found


def _stock(layer: Layer, expected: Mapping[str, Array]) -> dict[str, Implementation]:
    """Candidate 0 of a layer whose result is not expected, as it reads another layer's."""
    if layer.name in expected:
        return {}
    stock = ROUTINES[0].build(layer.task, {}, HOST)
    assert isinstance(stock, Implementation)
    return {"stock": stock}


def _extremes(layer: Layer, config: pytest.Config) -> dict[str, Implementation]:
    found: dict[str, Implementation] = {}
    for name, choices in EXTREME.get(layer.name, {}).items():
        for parameters in choices:
            built = BY_NAME[name].build(layer.task, parameters, HOST)
            assert isinstance(built, Implementation), (name, parameters, built)
            found[f"{name}{sorted(parameters.items())}"] = built
    return in_turns(found, CASES.index(layer.name), config)


def _wrong(program: Program | EmulatedProgram, subject: Subject) -> dict[str, float]:
    return {
        name: error
        for name, error in relative_errors(program, subject).items()
        if not error <= (MAX_WINOGRAD_ERROR if "winograd" in name else MAX_ERROR)
    }


@pytest.fixture(scope="module")
def found() -> Found:
    return {layer.name: (layer, weights) for layer, weights in layers({"kernels": kernel_model})}


@pytest.fixture(scope="module")
def expected() -> Mapping[str, Array]:
    return results_by_onnx_runtime(imported_model(kernel_model()))


@pytest.fixture(scope="module")
def offered(found: Found, pytestconfig: pytest.Config) -> dict[str, dict[str, Implementation]]:
    return {name: _variants(layer, HOST, pytestconfig) for name, (layer, _) in found.items() if name in CASES}


@pytest.fixture(scope="module")
def subjects(
    found: Found,
    offered: Mapping[str, dict[str, Implementation]],
    expected: Mapping[str, Array],
    pytestconfig: pytest.Config,
) -> dict[str, Subject]:
    chosen = {
        name: each if name in THOROUGH else in_turns(each, CASES.index(name), pytestconfig)
        for name, each in offered.items()
    }
    return {
        name: Subject(
            found[name][0],
            found[name][1],
            variants | _extremes(found[name][0], pytestconfig) | _stock(found[name][0], expected),
            expected.get(name),
        )
        for name, variants in with_each_routine(offered, chosen).items()
    }


@pytest.fixture(scope="module")
def program(subjects: dict[str, Subject]) -> Program:
    return load(subjects, HOST)


def _for(found: Found, expected: Mapping[str, Array], target: Target) -> dict[str, Subject]:
    return {name: Subject(*found[name], _variants(found[name][0], target), expected[name]) for name in FOR_OTHER_CPUS}


@pytest.mark.parametrize("case", CASES)
def test_every_kernel_computes_the_layer(case: str, subjects: dict[str, Subject], program: Program) -> None:
    subject = subjects[case]
    assert (not subject.implementations) == (case in REFUSED)
    assert _wrong(program, subject) == {}


@pytest.mark.parametrize("case", REFUSED)
def test_a_layer_without_kernels_says_why(case: str, found: Found) -> None:
    answers = [each for routine in BY_NAME.values() for each in variants_of(routine, found[case][0].task, HOST)]
    assert REFUSED[case] in {each.reason for each in answers if isinstance(each, Rejected)}


@pytest.mark.skipif(not {"avx2", "fma"} <= set(host().features), reason="this CPU has no AVX2")
def test_kernels_for_avx2_compute_the_layers(found: Found, expected: Mapping[str, Array]) -> None:
    chosen = _for(found, expected, AVX2)
    program = load(chosen, AVX2)
    assert {name: _wrong(program, each) for name, each in chosen.items()} == {name: {} for name in chosen}


def test_kernels_for_aarch64_compute_the_layers(found: Found, expected: Mapping[str, Array], tmp_path: Path) -> None:
    """All of them compile, and some run under emulation."""
    chosen, path = _for(found, expected, NEON), tmp_path / "neon.vmfb"
    path.write_bytes(compiled(chosen, NEON))
    assert len(open_module(path.read_bytes()).functions) >= len(FOR_OTHER_CPUS)
    assert {"direct", "product", "fused_winograd"} <= {
        name.partition("{")[0] for each in chosen.values() for name in each.implementations if BY_ELEMENT in name
    }
    if not isinstance(EMULATOR, Emulator):
        pytest.skip(EMULATOR)
    program = EmulatedProgram(EMULATOR, path)
    assert {name: _wrong(program, chosen[name]) for name in EMULATED} == {name: {} for name in EMULATED}


def test_a_block_that_register_tiles_do_not_divide_is_refused(found: Found) -> None:
    parameters = {
        "height": 4,
        "width": 4,
        "columns": 4,
        "vectors": 2,
        "block": 6,
        "groups": 1,
        "panels": 1,
        "unroll": 1,
    }
    answer = BY_NAME["fused_winograd"].build(found["images3"][0].task, parameters, HOST)
    assert answer == Rejected("a block of 6 tiles does not divide into register tiles of 4")
