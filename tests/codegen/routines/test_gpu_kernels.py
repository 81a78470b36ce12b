"""Our own kernels on a GPU: a subgroup computes what a vector does on a CPU."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from onnx import ModelProto

from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Variant, variants_of
from sartor.codegen.mlir.gpu_machine import gpu_machine
from sartor.codegen.routines import LOW_PRECISION, ROUTINES, routines_for
from sartor.runtime.driver.device import is_available
from sartor.runtime.driver.signature import Array
from sartor.runtime.module import open_module
from tests.codegen.routines.harness import Subject, compiled, layers, load, run
from tests.codegen.routines.layer_cases import Cases, Follower

HOST = Target.create("cpu")
VULKAN = Target.create("vulkan")
# Subgroups of 32, 32 or 64, and 16 invocations.
ELSEWHERE = ("ampere", "rdna3", "valhall4")
KERNELS = ("direct", "product", "window", "join", "rowwise")
MAX_ERROR = 1e-5

Found = Mapping[str, tuple[Layer, Mapping[str, Array]]]


def _model() -> ModelProto:
    """A layer for each kernel. Channels and rows fill neither subgroups nor tiles, windows overlap the padding."""
    cases = Cases()
    cases.convolution("padded", (1, 3, 7, 5), 11, stride=2)
    # As many input channels as are unrolled: factors are repeated by shuffles.
    cases.convolution("pointwise", (2, 16, 3, 5), 10, (1, 1), followers=[Follower("Mul", (2, 10, 1, 1))])
    cases.pool("pooled", "MaxPool", (1, 9, 6, 6), (1, 9, 3, 3), kernel_shape=[2, 2], strides=[2, 2])
    cases.product("product", (5, 8), (8, 11), followers=[Follower("Tanh")])
    cases.joined("joined", (1, 13, 2, 3), (4, 9))
    cases.rows("rows", "Softmax", (3, 21))
    return cases.model()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    folder = tmp_path_factory.mktemp("kernels")
    return {layer.name: (layer, weights) for layer, weights in layers(folder, {"kernels": _model})}


def _kernels(layer: Layer, target: Target) -> dict[str, Implementation]:
    """The first variant of each kernel routine."""
    chosen = (each for each in routines_for(()) if each.name in KERNELS)
    variants = [next(variants_of(each, layer.task, target)) for each in chosen]
    return {each.routine: each.implementation for each in variants if isinstance(each, Variant)}


def _subjects(found: Found, target: Target) -> dict[str, Subject]:
    subjects = {name: Subject(*each, _kernels(each[0], target)) for name, each in found.items()}
    assert {name for each in subjects.values() for name in each.implementations} == {*KERNELS}
    return subjects


def _stock(layer: Layer) -> dict[str, Implementation]:
    built = ROUTINES[0].build(layer.task, {}, HOST)
    assert isinstance(built, Implementation)
    return {"stock": built}


@pytest.mark.skipif(not is_available("vulkan"), reason="this machine has no Vulkan driver")
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
