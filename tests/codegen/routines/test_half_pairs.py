"""Convolutions and products with products in f16 on a GPU, two at once, against ONNX's results in f32."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from onnx import ModelProto

from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Rejected, Variant, choices_of, variants_of
from sartor.codegen.kernels.isa.half_pairs import HALF_PAIRS, HalfPairFma
from sartor.codegen.mlir.gpu_machine import HALF_ARITHMETIC, gpu_machine
from sartor.codegen.routines import LOW_PRECISION, ROUTINES
from sartor.codegen.routines.vector.direct import Direct
from sartor.codegen.routines.vector.product import Product
from sartor.runtime.module import open_module
from tests.codegen.routines.harness import Found, Subject, compiled, layers, load, translated
from tests.codegen.routines.layer_cases import Cases, Follower
from tests.codegen.routines.narrow import ROUNDING, rounded, rounded_subject, run_stored
from tests.devices import needs_vulkan

pytestmark = pytest.mark.vulkan

HOST, VULKAN = Target.create("cpu"), Target.create("vulkan")
ELSEWHERE = ("ampere", "rdna3", "valhall4")
# Layers of which every tiling runs.
ALL_TILINGS = ("wide_loads",)
# Sums of 16 products of about the same size in f16: their roundings add up like a random walk.
CHAIN = 4


def _model() -> ModelProto:
    """Depths that chains divide and do not, tiles at edges, batches, and images of one pixel."""
    cases = Cases()
    cases.convolution("padded", (1, 8, 9, 7), 11)
    cases.convolution("strided", (8, 24, 7, 5), 3, stride=2)
    cases.convolution("wide_loads", (1, 64, 5, 19), 42, (3, 2), pads=(1, 0, 0, 1), residual=True)
    cases.convolution("dilated", (2, 38, 11, 9), 9, dilation=2)
    cases.convolution("pointwise", (8, 32, 3, 5), 70, (1, 1), followers=[Follower("Mul", (8, 70, 1, 1))])
    cases.convolution("pixel", (1, 14, 1, 1), 24, (1, 1))
    cases.product("row", (1, 130), (130, 9))
    cases.product("rows", (37, 48), (48, 65))
    cases.convolution("odd", (1, 7, 4, 4), 8)
    return cases.model()


@pytest.fixture(scope="module")
def found() -> Found:
    return {layer.name: (layer, weights) for layer, weights in layers({"halves": _model})}


def _variants(layer: Layer, target: Target, most: int | None = 1) -> dict[str, Implementation]:
    chosen = (each for each in LOW_PRECISION["f16"] if each.name == "half_pairs")
    found = (variant for each in chosen for variant in variants_of(each, layer.task, target))
    built = (each.implementation for each in found if isinstance(each, Variant))
    return {f"halves_{position}": each for position, each in enumerate(islice(built, most))}


def _subjects(found: Found, target: Target) -> dict[str, Subject]:
    made = {
        name: rounded_subject(
            Subject(*each, _variants(each[0], target, None if name in ALL_TILINGS and target == VULKAN else 1)), "f16"
        )
        for name, each in found.items()
    }
    assert not made.pop("odd").implementations
    assert all(each.implementations for each in made.values())
    return made


@needs_vulkan
def test_products_in_f16_compute_the_layers(found: Found) -> None:
    """Errors are those of sums of 16 products in f16, and of storing the result."""
    subjects = _subjects(found, VULKAN)
    stock = {name: ROUTINES[0].build(each.task, {}, HOST) for name, each in subjects.items()}
    references = {
        name: replace(subjects[name], implementations={"stock": each})
        for name, each in stock.items()
        if isinstance(each, Implementation)
    }
    on_cpu, on_gpu = load(references, HOST), load(subjects, VULKAN)
    for case, subject in subjects.items():
        inputs = [rounded(each, "f16") for each in subject.inputs()]
        expected = run_stored(on_cpu, references[case], "stock", inputs, {}).astype(np.float64)
        for name in subject.implementations:
            error = np.abs(run_stored(on_gpu, subject, name, inputs, {}) - expected).max() / np.abs(expected).max()
            assert error <= CHAIN * ROUNDING["f16"], (case, name)


@pytest.mark.parametrize("architecture", ["llvmpipe", *ELSEWHERE])
def test_two_numbers_are_multiplied_at_once(architecture: str, found: Found) -> None:
    """Also for GPUs that are not here: both numbers of a word are multiplied by one instruction in f16."""
    target = Target.create("vulkan", architecture)
    layer, weights = found["pointwise"]
    text = translated({layer.name: Subject(layer, weights, _variants(layer, target))}, target)
    products = [line for line in text.splitlines() if "spirv.GL.Fma" in line]
    assert products
    assert all(line.endswith("vector<2xf16>") for line in products)
    (required,) = re.findall(r"requires #spirv.vce<v1.\d, \[([^]]*)\]", text)
    assert {"Float16", "StorageBuffer16BitAccess"} <= {*required.split(", ")}
    assert open_module(compiled(_subjects(found, target), target)).functions


def test_devices_without_arithmetic_in_f16_are_refused() -> None:
    machine = gpu_machine(VULKAN)
    assert HALF_ARITHMETIC in machine.features
    assert HALF_PAIRS.refusal(machine) is None
    refusal = HALF_PAIRS.refusal(replace(machine, features=frozenset()))
    assert isinstance(refusal, Rejected)
    assert "f16" in refusal.reason


def test_odd_depths_and_cpus_are_refused(found: Found) -> None:
    routine = Direct("half_pairs", storage="f16", element=HALF_PAIRS)
    odd = choices_of(routine, found["odd"][0].task, VULKAN)
    assert isinstance(odd, Rejected)
    assert "7 input channels" in odd.reason
    assert isinstance(choices_of(routine, found["padded"][0].task, HOST), Rejected)
    by_row = Product("half_pairs", storage="f16", element=HALF_PAIRS)
    assert isinstance(choices_of(by_row, found["row"][0].task, HOST), Rejected)


def test_sums_in_f16_are_a_rounding_of_their_own() -> None:
    """So the error budget counts more than the rounding of stored values."""
    (first, second) = (each for each in LOW_PRECISION["f16"] if each.name == "half_pairs")
    assert first.traits.rounds_between
    assert second.traits.rounds_between
    assert HalfPairFma().chain <= 16
