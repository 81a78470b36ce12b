"""Our own kernels on a GPU: a subgroup computes what a vector does on a CPU."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Variant, variants_of
from sartor.codegen.mlir.gpu_machine import gpu_machine
from sartor.codegen.routines import ROUTINES, routines_for
from sartor.runtime.driver.device import is_available
from sartor.runtime.driver.signature import Array
from sartor.runtime.module import open_module
from tests.codegen.routines.harness import Subject, compiled, layers, load, run
from tests.codegen.routines.kernel_cases import kernel_model

HOST = Target.create("cpu")
VULKAN = Target.create("vulkan")
# Subgroups of 32, 32 or 64, and 16 invocations.
ELSEWHERE = ("ampere", "ada", "rdna3", "valhall4")

KERNELS = ("direct", "product", "window", "join", "rowwise")
# Padded windows, strides, panels and vectors that channels do not fill, batches, operands of several kinds, rows.
CASES = (
    "uneven_window",
    "images3",
    "channels3",
    "prime1x1",
    "squeeze_excite",
    "apart_stride3",
    "max_uneven_padding",
    "batch_by_weight",
    "odd",
    "joined_odd",
    "softmax_row",
)
MAX_ERROR = 1e-5


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, tuple[Layer, Mapping[str, Array]]]:
    folder = tmp_path_factory.mktemp("kernels")
    return {layer.name: (layer, weights) for layer, weights in layers(folder, {"kernels": kernel_model})}


def _kernels(layer: Layer, target: Target) -> dict[str, Implementation]:
    """The first variant of each kernel routine."""
    chosen = (each for each in routines_for(()) if each.name in KERNELS)
    variants = [next(variants_of(each, layer.task, target)) for each in chosen]
    return {each.routine: each.implementation for each in variants if isinstance(each, Variant)}


def _stock(layer: Layer) -> dict[str, Implementation]:
    built = ROUTINES[0].build(layer.task, {}, HOST)
    assert isinstance(built, Implementation)
    return {"stock": built}


@pytest.mark.skipif(not is_available("vulkan"), reason="this machine has no Vulkan driver")
def test_kernels_for_vulkan_compute_the_layers(found: Mapping[str, tuple[Layer, Mapping[str, Array]]]) -> None:
    subjects = {name: Subject(*found[name], _kernels(found[name][0], VULKAN)) for name in CASES}
    assert {name for each in subjects.values() for name in each.implementations} == {*KERNELS}
    references = {name: Subject(*found[name], _stock(found[name][0])) for name in CASES}
    on_cpu, on_gpu = load(references, HOST), load(subjects, VULKAN)
    for case, subject in subjects.items():
        inputs = subject.inputs()
        expected = run(on_cpu, references[case], "stock", inputs).astype(np.float64)
        for name in subject.implementations:
            error = np.abs(run(on_gpu, subject, name, inputs) - expected).max() / np.abs(expected).max()
            assert error <= MAX_ERROR, (case, name)


@pytest.mark.parametrize("architecture", ELSEWHERE)
def test_every_kernel_compiles_for_other_gpus(
    architecture: str, found: Mapping[str, tuple[Layer, Mapping[str, Array]]]
) -> None:
    target = Target.create("vulkan", architecture)
    cases = ("prime1x1", "odd", "max_uneven_padding", "joined_odd", "softmax_row")
    subjects = {name: Subject(*found[name], _kernels(found[name][0], target)) for name in cases}
    assert {name for each in subjects.values() for name in each.implementations} == {*KERNELS}
    assert len(open_module(compiled(subjects, target)).functions) >= len(KERNELS)


def test_a_subgroup_is_never_smaller_than_a_workgroup() -> None:
    lanes = {each: gpu_machine(Target.create("vulkan", each)).lanes for each in ("llvmpipe", *ELSEWHERE)}
    assert lanes == {"llvmpipe": 8, "ampere": 32, "ada": 32, "rdna3": 32, "valhall4": 16}
