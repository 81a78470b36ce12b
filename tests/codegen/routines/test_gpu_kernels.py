"""Our own kernels on a GPU: a subgroup computes what a vector does on a CPU."""

from __future__ import annotations

import pickle
from itertools import islice

import numpy as np
import pytest
from onnx import ModelProto

from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Rejected, Variant, choices_of, variants_of
from sartor.codegen.kernels.isa.pairs import check_even
from sartor.codegen.mlir.gpu_machine import gpu_machine
from sartor.codegen.routines import LOW_PRECISION, ROUTINES, routines_for
from sartor.runtime.module import open_module
from tests.codegen.routines.harness import Found, Subject, compiled, layers, load, run
from tests.codegen.routines.layer_cases import Cases, Follower
from tests.devices import needs_vulkan

pytestmark = pytest.mark.vulkan

HOST = Target.create("cpu")
VULKAN = Target.create("vulkan")
# Subgroups of 32, 32 or 64, and 16 invocations.
ELSEWHERE = ("ampere", "rdna3", "valhall4")
KERNELS = ("direct", "product", "window", "join", "rowwise")
# Only where 64 bits are loaded as quickly as 32. Single numbers are not offered then.
PAIRS = ("direct_pairs", "product_pairs")
# Layers of which every tiling by pairs runs.
ALL_TILINGS = ("wide_loads", "rows")
MAX_ERROR = 1e-5


def _model() -> ModelProto:
    """A layer for each kernel. Channels and rows fill neither subgroups nor tiles, windows overlap the padding."""
    cases = Cases()
    cases.convolution("padded", (1, 3, 7, 5), 11, stride=2)
    # As many input channels as are unrolled: factors are repeated by shuffles.
    cases.convolution("pointwise", (2, 16, 3, 5), 10, (1, 1), followers=[Follower("Mul", (2, 10, 1, 1))])
    cases.pool("pooled", "MaxPool", (1, 9, 6, 6), (1, 9, 3, 3), kernel_shape=[2, 2], strides=[2, 2])
    cases.product("product", (5, 12), (12, 11), followers=[Follower("Tanh")])
    cases.joined("joined", (1, 13, 2, 3), (4, 9))
    cases.rows("rows", "Softmax", (3, 21))
    return cases.model()


@pytest.fixture(scope="module")
def found() -> Found:
    return {layer.name: (layer, weights) for layer, weights in layers({"kernels": _model})}


def _pair_model() -> ModelProto:
    """Layers for pairs of channels: loads of 32 and of 64 bits, tiles at edges, batches, and images of one pixel."""
    cases = Cases()
    cases.convolution("padded", (1, 8, 9, 7), 11)
    cases.convolution("strided", (8, 24, 7, 5), 3, stride=2)
    cases.convolution("wide_loads", (1, 16, 5, 19), 42, (3, 2), pads=(1, 0, 0, 1), residual=True)
    cases.convolution("dilated", (2, 40, 11, 9), 9, dilation=2)
    cases.convolution("pointwise", (8, 32, 3, 5), 70, (1, 1), followers=[Follower("Mul", (8, 70, 1, 1))])
    cases.convolution("pixel", (1, 16, 1, 1), 24, (1, 1))
    cases.product("row", (1, 40), (40, 9))
    cases.product("rows", (37, 48), (48, 65), followers=[Follower("Tanh")])
    return cases.model()


@pytest.fixture(scope="module")
def pairs() -> Found:
    return {layer.name: (layer, weights) for layer, weights in layers({"pairs": _pair_model})}


def _kernels(layer: Layer, target: Target) -> dict[str, Implementation]:
    """The first variant of each kernel routine."""
    chosen = (routine for routine in routines_for(()) if routine.name in (*KERNELS, *PAIRS))
    variants = [next(variants_of(each, layer.task, target)) for each in chosen]
    return {variant.routine: variant.implementation for variant in variants if isinstance(variant, Variant)}


def _by_pairs(layer: Layer) -> dict[str, Implementation]:
    """Variants that multiply pairs: all of two layers, the first of the others, as a driver takes seconds for each."""
    chosen = (routine for routine in routines_for(()) if routine.name in PAIRS)
    variants = (variant for each in chosen for variant in variants_of(each, layer.task, VULKAN))
    built = (variant.implementation for variant in variants if isinstance(variant, Variant))
    most = None if layer.name in ALL_TILINGS else 1
    return {f"pairs_{position}": each for position, each in enumerate(islice(built, most))}


def _subjects(found: Found, target: Target) -> dict[str, Subject]:
    subjects = {name: Subject(*each, _kernels(each[0], target)) for name, each in found.items()}
    expected = {*KERNELS, *PAIRS[:1]} if target == VULKAN else {*KERNELS}
    assert {name for subject in subjects.values() for name in subject.implementations} == expected
    return subjects


def _stock(layer: Layer) -> dict[str, Implementation]:
    built = ROUTINES[0].build(layer.task, {}, HOST)
    assert isinstance(built, Implementation)
    return {"stock": built}


@needs_vulkan
def test_kernels_for_vulkan_compute_the_layers(found: Found) -> None:
    subjects = _subjects(found, VULKAN)
    references = {name: Subject(*each, _stock(each[0])) for name, each in found.items()}
    on_cpu, on_gpu = load(references, HOST), load(subjects, VULKAN)
    for case, subject in subjects.items():
        inputs = subject.inputs()
        expected = run(on_cpu, references[case], "stock", inputs).astype(np.float64)
        for name in subject.implementations:
            error = np.abs(run(on_gpu, subject, name, inputs) - expected).max() / np.abs(expected).max()
            assert error <= MAX_ERROR, (case, name)


@needs_vulkan
def test_pairs_compute_the_layers(pairs: Found) -> None:
    references = {name: Subject(*pair, _stock(pair[0])) for name, pair in pairs.items()}
    subjects = {name: Subject(*pair, _by_pairs(pair[0])) for name, pair in pairs.items()}
    on_cpu, on_gpu = load(references, HOST), load(subjects, VULKAN)
    for case, subject in subjects.items():
        inputs = subject.inputs()
        expected = run(on_cpu, references[case], "stock", inputs).astype(np.float64)
        assert subject.implementations, case
        for name in subject.implementations:
            error = np.abs(run(on_gpu, subject, name, inputs) - expected).max() / np.abs(expected).max()
            assert error <= MAX_ERROR, (case, name)


def test_pairs_take_the_place_of_single_numbers_where_they_are_loaded_faster(found: Found, pairs: Found) -> None:
    def offered(layer: Layer, target: Target) -> set[str]:
        return {*_kernels(layer, target)} & {"direct", "product", *PAIRS}

    assert offered(pairs["padded"][0], VULKAN) == {"direct_pairs"}
    assert offered(pairs["rows"][0], VULKAN) == {"product_pairs"}
    # Three channels, and sums over twelve.
    assert offered(found["padded"][0], VULKAN) == {"direct"}
    assert offered(found["product"][0], VULKAN) == {"product"}
    for other in (HOST, *(Target.create("vulkan", each) for each in ELSEWHERE)):
        assert offered(pairs["padded"][0], other) == {"direct"}


def test_routines_that_travel_to_workers_still_multiply_pairs(pairs: Found) -> None:
    # Workers write the kernels, so they compare elements that are copies.
    for routine in (each for each in routines_for(()) if each.name in PAIRS):
        copied = pickle.loads(pickle.dumps(routine))
        offered = {name: choices_of(routine, layer.task, VULKAN) for name, (layer, _) in pairs.items()}
        found = {name: each for name, each in offered.items() if not isinstance(each, Rejected)}
        assert found
        for name, each in found.items():
            assert choices_of(copied, pairs[name][0].task, VULKAN) == each
            assert isinstance(copied.build(pairs[name][0].task, each[0], VULKAN), Implementation)


def test_pairs_at_odd_offsets_are_refused() -> None:
    with pytest.raises(ValueError, match="even offsets"):
        check_even((96, 24, 3))


@pytest.mark.parametrize("architecture", ELSEWHERE)
def test_every_kernel_compiles_for_other_gpus(architecture: str, found: Found) -> None:
    target = Target.create("vulkan", architecture)
    assert len(open_module(compiled(_subjects(found, target), target)).functions) >= len(KERNELS)


def test_activations_may_be_stored_in_f16(found: Found) -> None:
    (direct,) = (each for each in LOW_PRECISION["f16"] if each.name == "direct")
    layer, weights = found["pointwise"]
    variant = next(variants_of(direct, layer.task, VULKAN))
    assert isinstance(variant, Variant)
    assert variant.implementation.output.dtype == "f16"
    subject = Subject(layer, weights, {"direct": variant.implementation})
    assert open_module(compiled({"pointwise": subject}, VULKAN)).functions


def test_a_workgroup_is_never_more_than_a_subgroup() -> None:
    lanes = {each: gpu_machine(Target.create("vulkan", each)).lanes for each in ("llvmpipe", *ELSEWHERE)}
    assert lanes == {"llvmpipe": 8, "ampere": 32, "rdna3": 32, "valhall4": 16}
