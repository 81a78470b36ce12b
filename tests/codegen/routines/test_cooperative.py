"""Products by cooperative matrices, which no device here has: they are compiled, and their instructions looked at.

What they compute is run on the CPU, without the attribute that tells IREE by which instructions.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from onnx import ModelProto

from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Rejected, Variant, choices_of, variants_of
from sartor.codegen.mlir.gpu_machine import COOPERATIVE_MATRICES, gpu_machine
from sartor.codegen.routines import LOW_PRECISION
from sartor.codegen.routines.iree.stock import Stock
from sartor.codegen.routines.iree_tiled.cooperative import CooperativePatches, CooperativeProduct
from sartor.runtime.module import open_module
from tests.codegen.routines.harness import Found, Subject, compiled, layers, load, relative_errors, translated
from tests.codegen.routines.layer_cases import Cases, Follower

pytestmark = pytest.mark.vulkan

TARGETS = ("ampere", "ada", "rdna3")
PRODUCT, PATCHES = CooperativeProduct(), CooperativePatches()
ROUTINES = {
    "plain": PRODUCT,
    "followed": PRODUCT,
    "pointwise": PRODUCT,
    "square": PATCHES,
    "window": PATCHES,
    "strided": PATCHES,
    "odd": PRODUCT,
    "last": PRODUCT,
    "seventh": PATCHES,
}
SHARED_BYTES = 48 << 10
# Relative to the largest result, of operands and results in f16. What is wrong is off by a tenth and more.
ROUNDED = 5e-3
_COMPILATION_INFO = re.compile(
    r"compilation_info = #iree_codegen\.compilation_info<[^\n]*?subgroup_size = \d+, \{[^}]*\}>>"
)


def _model() -> ModelProto:
    cases = Cases()
    cases.product("plain", (64, 32), (32, 48))
    cases.product("followed", (128, 96), (96, 128), followers=[Follower("Tanh")])
    cases.convolution("pointwise", (1, 64, 16, 8), 32, (1, 1), residual=True)
    cases.convolution("square", (1, 16, 16, 16), 16)
    cases.convolution("window", (1, 32, 16, 16), 48, residual=True)
    cases.convolution("strided", (2, 16, 16, 17), 32, (1, 1), stride=(2, 2))
    cases.convolution("seventh", (1, 16, 14, 14), 32, residual=True)
    cases.convolution("last", (1, 64, 7, 7), 32, (1, 1), residual=True)
    cases.product("odd", (37, 48), (48, 64), bias=False, followers=[Follower("Tanh")])
    cases.product("flat", (7, 32), (32, 48))
    cases.product("narrow", (64, 40), (40, 48))
    return cases.model()


@pytest.fixture(scope="module")
def found() -> Found:
    return {layer.name: (layer, weights) for layer, weights in layers({"cooperative": _model})}


def _implementations(layer: Layer, target: Target) -> dict[str, Implementation]:
    found = [
        variant for variant in variants_of(ROUTINES[layer.name], layer.task, target) if isinstance(variant, Variant)
    ]
    return {f"v{position}": each.implementation for position, each in enumerate(found)}


PADDED = ("odd", "last", "seventh")
_ARITHMETIC = re.compile(r"spirv\.(?:FAdd|FMul|FSub|GL\.Tanh|GL\.FMax|CL\.\w+)\b")


@pytest.mark.parametrize("architecture", TARGETS)
def test_every_tiling_multiplies_cooperative_matrices(architecture: str, found: Found) -> None:
    """One dispatch each, with what follows the product, in memory that the drivers have; others only move numbers."""
    target = Target.create("vulkan", architecture)
    subjects = {name: Subject(*found[name], _implementations(found[name][0], target)) for name in ROUTINES}
    text = translated(subjects, target)
    every = re.split(r"(?=\n *hal\.executable private)", text)[1:]
    kernels = [each for each in every if "CooperativeMatrixMulAdd" in each]
    assert len(kernels) == sum(len(subject.implementations) for subject in subjects.values()) >= 2 * len(ROUTINES)
    assert not [each for each in every if each not in kernels and _ARITHMETIC.search(each)]
    whole = {name: subject for name, subject in subjects.items() if name not in PADDED and ROUTINES[name] is PRODUCT}
    alone = re.split(r"(?=\n *hal\.executable private)", translated(whole, target))[1:]
    assert len(alone) == sum(len(each.implementations) for each in whole.values()), "beside products there is nothing"
    for kernel in kernels:
        assert "CooperativeMatrixKHR" in kernel.partition("spirv.module")[2].partition("{")[0]
        shared = re.findall(r"GlobalVariable .*array<(\d+) x vector<4xf32>>\)>, Workgroup>", kernel)
        assert 0 < sum(16 * int(each) for each in shared) <= SHARED_BYTES
    # What follows the translation is the same for all.
    few = {name: subjects[name] for name in ("plain", "strided", "odd")}
    assert len(open_module(compiled(few, target)).functions) >= sum(len(each.implementations) for each in few.values())


@pytest.mark.parametrize("name", ROUTINES)
def test_what_is_multiplied_is_the_layer(name: str, found: Found) -> None:
    layer, weights = found[name]
    cpu = Target.create("cpu")
    implementations = {
        key: replace(implementation, body=_COMPILATION_INFO.sub("", implementation.body))
        for key, implementation in _implementations(layer, Target.create("vulkan", "ampere")).items()
    }
    (stock,) = (variant for variant in variants_of(Stock(), layer.task, cpu) if isinstance(variant, Variant))
    subject = Subject(layer, weights, {"stock": stock.implementation, **implementations})
    errors = relative_errors(load({name: subject}, cpu), subject)
    assert len(errors) > 1
    assert max(errors.values()) < ROUNDED, errors


def test_values_and_filters_are_stored_in_f16(found: Found) -> None:
    layer, weights = found["pointwise"]
    first, *_ = _implementations(layer, Target.create("vulkan", "ampere")).values()
    assert {each.dtype for each in (*first.inputs, first.output)} == {"f16"}
    packed = [packing.apply(weights[name]).dtype for name, packing in zip(layer.weights, first.packings, strict=True)]
    assert sorted(map(str, packed)) == ["float16", "float32"]


def test_layers_and_devices_that_it_is_not_for(found: Found) -> None:
    ampere = Target.create("vulkan", "ampere")
    reasons = {
        ("narrow", PRODUCT): "its columns and depth are not multiples of 16",
        ("flat", PRODUCT): "no tiles fit the memory of a workgroup and the rows",
        ("square", PRODUCT): "neither a matrix product nor a 1x1 convolution",
        ("pointwise", PATCHES): "a product without patches",
        ("plain", PATCHES): "not a two-dimensional convolution without groups",
    }
    for (name, routine), reason in reasons.items():
        assert choices_of(routine, found[name][0].task, ampere) == Rejected(reason)
    task = found["plain"][0].task
    for other in ("llvmpipe", "valhall4"):
        target = Target.create("vulkan", other)
        assert COOPERATIVE_MATRICES not in gpu_machine(target).features
        assert choices_of(PRODUCT, task, target) == Rejected("the device has no cooperative matrices")
    assert choices_of(PRODUCT, task, Target.create("cpu")) == Rejected("it is for Vulkan only")


def test_it_is_offered_for_f16_only() -> None:
    offered = {dtype: [each.name for each in routines] for dtype, routines in LOW_PRECISION.items()}
    for routine in (PRODUCT, PATCHES):
        assert {dtype for dtype, names in offered.items() if routine.name in names} == {"f16"}
    assert np.dtype("float16").itemsize == 2
