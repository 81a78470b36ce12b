"""Winograd's method as one kernel on a GPU, whose invocations read what others of the subgroup encoded."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from onnx import ModelProto

from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Rejected, Variant, choices_of, variants_of
from sartor.codegen.ir.winograd import MOST_POINTS_IN_INVOCATIONS
from sartor.codegen.kernels.winograd.geometry import WinogradTiling
from sartor.codegen.mlir.gpu_machine import gpu_machine
from sartor.codegen.routines import ROUTINES
from sartor.codegen.routines.vector.fused_winograd import FusedWinograd, SubgroupWinograd
from sartor.runtime.module import open_module
from tests.codegen.routines.harness import Found, Subject, compiled, layers, load, run, translated
from tests.codegen.routines.layer_cases import Cases
from tests.devices import needs_vulkan

pytestmark = pytest.mark.vulkan

HOST, VULKAN = Target.create("cpu"), Target.create("vulkan")
ELSEWHERE = ("ampere", "rdna3", "valhall4")
ROUTINE = SubgroupWinograd()
# Of tiles of 2x2 and 4x4; the larger ones multiply by numbers up to 8.
MAX_ERROR = 5e-5


def _model() -> ModelProto:
    """Channels that fill neither subgroups nor panels, tiles beyond the image, several images and a residual."""
    cases = Cases()
    cases.convolution("padded", (1, 17, 30, 27), 19)
    cases.convolution("images", (2, 20, 21, 28), 36, pads=(0, 1, 2, 0), residual=True)
    cases.convolution("whole", (1, 16, 28, 28), 16)
    cases.convolution("large", (1, 64, 56, 56), 64)
    cases.convolution("few", (1, 64, 14, 14), 64)
    cases.convolution("strided", (1, 17, 30, 27), 19, stride=2)
    return cases.model()


@pytest.fixture(scope="module")
def found() -> Found:
    return {layer.name: (layer, weights) for layer, weights in layers({"winograd": _model})}


def _tilings(layer: Layer, target: Target, most: int) -> dict[str, Implementation]:
    variants = islice(variants_of(ROUTINE, layer.task, target), most)
    return {
        f"v{index}": variant.implementation for index, variant in enumerate(variants) if isinstance(variant, Variant)
    }


def _pinned(layer: Layer, tiling: WinogradTiling) -> Implementation:
    built = ROUTINE.build(layer.task, tiling.parameters(), VULKAN)
    assert isinstance(built, Implementation)
    return built


def _subjects(found: Found, target: Target) -> dict[str, Subject]:
    return {name: Subject(*found[name], _tilings(found[name][0], target, 1)) for name in ("padded", "images")}


@needs_vulkan
def test_the_kernel_computes_the_layers(found: Found) -> None:
    """Also by several blocks for each workgroup, which take turns in its workspace."""
    blocks = WinogradTiling(height=2, width=2, columns=2, vectors=1, block=4, groups=2, panels=2, unroll=1)
    subjects = _subjects(found, VULKAN)
    for name in ("padded", "whole"):
        layer, weights = found[name]
        subjects[f"{name}_blocks"] = Subject(layer, weights, {"blocks": _pinned(layer, blocks)})
    references = {}
    for name, subject in subjects.items():
        built = ROUTINES[0].build(subject.task, {}, HOST)
        assert isinstance(built, Implementation)
        assert subject.implementations
        references[name] = Subject(subject.layer, subject.weights, {f"stock_{name}": built})
    on_cpu, on_gpu = load(references, HOST), load(subjects, VULKAN)
    for case, subject in subjects.items():
        inputs = subject.inputs()
        expected = run(on_cpu, references[case], f"stock_{case}", inputs).astype(np.float64)
        for name in subject.implementations:
            error = np.abs(run(on_gpu, subject, name, inputs) - expected).max() / np.abs(expected).max()
            assert error <= MAX_ERROR, (case, name)


@pytest.mark.parametrize("architecture", ELSEWHERE)
def test_it_compiles_for_other_gpus_with_barriers_for_buffers(architecture: str, found: Found) -> None:
    target = Target.create("vulkan", architecture)
    layer, weights = found["large"]
    subject = Subject(layer, weights, _tilings(layer, target, 1))
    barriers = [line for line in translated({"large": subject}, target).splitlines() if "ControlBarrier" in line]
    assert barriers
    assert all("UniformMemory" in barrier and "AcquireRelease" in barrier for barrier in barriers)
    assert open_module(compiled({"large": subject}, target)).functions


def test_tiles_are_such_that_registers_hold_them(found: Found) -> None:
    target = Target.create("vulkan", "ampere")
    offered = choices_of(ROUTINE, found["large"][0].task, target)
    assert not isinstance(offered, Rejected)
    for each in offered:
        tiling = WinogradTiling.of(each)
        assert max(tiling.height, tiling.width) + 2 <= MOST_POINTS_IN_INVOCATIONS


def test_there_are_workgroups_for_all_of_a_gpu(found: Found) -> None:
    """A workgroup is one subgroup: with few of them, most of a GPU would be idle, which no model of cycles tells."""
    target = Target.create("vulkan", "ampere")
    few = choices_of(ROUTINE, found["few"][0].task, target)
    assert few == Rejected("too few tiles for all subgroups of a GPU")
    layer = found["large"][0]
    offered = choices_of(ROUTINE, layer.task, target)
    assert not isinstance(offered, Rejected)
    for each in offered:
        x, y, z = ROUTINE.layer(layer.task, each, target).code.groups
        assert x * y * z >= gpu_machine(target).threads // 2


def test_layers_that_gain_nothing_are_refused(found: Found) -> None:
    """On a device with pairs, loads of single numbers cost more than fewer products save."""
    pairs = choices_of(ROUTINE, found["whole"][0].task, VULKAN)
    assert pairs == Rejected("pairs of channels are loaded more quickly")
    assert isinstance(choices_of(ROUTINE, found["strided"][0].task, VULKAN), Rejected)
    assert choices_of(FusedWinograd(), found["whole"][0].task, VULKAN) == Rejected("the kernel is not for vulkan")
    assert choices_of(ROUTINE, found["whole"][0].task, HOST) == Rejected("the kernel is not for cpu")
