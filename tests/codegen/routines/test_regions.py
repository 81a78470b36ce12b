"""Convolutions as named ops in dispatches of their own, by IREE's code for Vulkan."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto

from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Rejected, Variant, choices_of, variants_of
from sartor.codegen.mlir.dispatches import lower
from sartor.codegen.routines import ROUTINES
from sartor.codegen.routines.iree_tiled.region import RegionConvolution
from tests.codegen.routines.harness import Found, Subject, compiled, layers, load, run
from tests.codegen.routines.layer_cases import Cases
from tests.devices import needs_vulkan

pytestmark = pytest.mark.vulkan

HOST = Target.create("cpu")
VULKAN = Target.create("vulkan")
ROUTINES_OF_REGIONS = (RegionConvolution(), RegionConvolution("region_nchw", channels_last=False))
MAX_ERROR = 1e-5


def _model() -> ModelProto:
    cases = Cases()
    cases.convolution("padded", (1, 16, 8, 12), 24, residual=True)
    cases.convolution("strided", (1, 3, 17, 16), 12, stride=2)
    cases.convolution("dilated", (1, 8, 10, 14), 20, (3, 2), dilation=2, pads=(2, 1, 2, 1))
    cases.convolution("pointwise", (1, 12, 6, 4), 8, (1, 1), bias=False)
    cases.convolution("depthwise", (1, 12, 6, 8), 12, groups=12)
    cases.convolution("odd", (1, 4, 5, 5), 6)
    return cases.model()


@pytest.fixture(scope="module")
def found() -> Found:
    return {layer.name: (layer, weights) for layer, weights in layers({"regions": _model})}


def _implementations(layer: Layer, target: Target, most: int = 1) -> dict[str, Implementation]:
    variants = [
        variant for routine in ROUTINES_OF_REGIONS for variant in list(variants_of(routine, layer.task, target))[:most]
    ]
    built = [variant for variant in variants if isinstance(variant, Variant)]
    return {f"{each.routine}_{position}": each.implementation for position, each in enumerate(built)}


def _subjects(found: Found, target: Target) -> dict[str, Subject]:
    # Every tiling of one layer, as a driver takes long to compile them.
    made = {
        name: Subject(*each, _implementations(each[0], target, 3 if name == "padded" else 1))
        for name, each in found.items()
    }
    return {name: each for name, each in made.items() if each.implementations}


def test_each_layout_has_the_layers_that_its_vectors_divide(found: Found) -> None:
    offered = {
        name: {implementation.rpartition("_")[0] for implementation in subject.implementations}
        for name, subject in _subjects(found, VULKAN).items()
    }
    both = {"region", "region_nchw"}
    assert offered == {
        "padded": both, "strided": both, "dilated": {"region"}, "pointwise": both, "depthwise": {"region"},
    }  # fmt: skip
    assert isinstance(choices_of(ROUTINES_OF_REGIONS[0], found["padded"][0].task, HOST), Rejected)


@pytest.mark.parametrize(("name", "dispatches"), [("pointwise", 1), ("padded", 2)])
def test_a_layer_is_one_dispatch_that_keeps_the_named_op(found: Found, name: str, dispatches: int) -> None:
    """Padding is a copy before it."""
    for implementation in _implementations(found[name][0], VULKAN).values():
        code = lower({"layer": implementation}, VULKAN)["layer"].text
        assert code.count("flow.dispatch ") == dispatches == 1 + code.count("@layer_dispatch_0_slow_memcpy workgroups")
        assert code.count("linalg.conv_2d_n") == 1
        assert code.count("compilation_info = #iree_codegen") == 1


@needs_vulkan
def test_regions_compute_the_layers(found: Found) -> None:
    subjects = _subjects(found, VULKAN)
    stock = {name: ROUTINES[0].build(layer.task, {}, HOST) for name, (layer, _) in found.items()}
    references = {
        name: Subject(*found[name], {"stock": each}) for name, each in stock.items() if isinstance(each, Implementation)
    }
    on_cpu, on_gpu = load(references, HOST), load(subjects, VULKAN)
    for case, subject in subjects.items():
        inputs = subject.inputs()
        expected = run(on_cpu, references[case], "stock", inputs).astype(np.float64)
        for name in subject.implementations:
            error = np.abs(run(on_gpu, subject, name, inputs) - expected).max() / np.abs(expected).max()
            assert error <= MAX_ERROR, (case, name)


@pytest.mark.parametrize("architecture", ["ampere", "rdna3", "valhall4"])
def test_regions_compile_for_other_gpus(architecture: str, found: Found) -> None:
    target = Target.create("vulkan", architecture)
    assert compiled(_subjects(found, target), target)
