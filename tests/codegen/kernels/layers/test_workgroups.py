"""Layers that need more workgroups than are counted have stock code alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Rejected, Variant, variants_of
from sartor.codegen.kernels.layers.kernel_layer import check_groups
from sartor.codegen.routines import routines_for
from tests.codegen.routines.harness import layers
from tests.codegen.routines.layer_cases import Cases

CPU, CUDA, VULKAN = Target.create("cpu"), Target.create("cuda", "sm_90"), Target.create("vulkan", "llvmpipe")


@pytest.mark.parametrize(
    ("target", "within", "beyond"),
    [
        (CPU, (1 << 20, 1 << 20, 65535), (1, 1, 65536)),
        (CUDA, (1 << 20, 65535, 65535), (1, 65536, 1)),
        (VULKAN, (1 << 20, 65535, 65535), (1, 1, 65536)),
    ],
    ids=str,
)
def test_each_dimension_has_its_limit(
    target: Target, within: tuple[int, int, int], beyond: tuple[int, int, int]
) -> None:
    check_groups(within, target)
    with pytest.raises(ValueError, match="65536 workgroups"):
        check_groups(beyond, target)


def test_kernels_refuse_batches_of_which_they_would_not_compute_the_last(tmp_path: Path) -> None:
    cases = Cases()
    for batches in (65535, 65536):
        cases.product(f"of{batches}", (batches, 2, 4), (batches, 4, 8), weight=False, bias=False)
    tasks = {layer.name: layer.task for layer, _ in layers(tmp_path, {"batches": cases.model})}
    assert any(isinstance(each, Variant) for each in _products(tasks["of65535"]))
    refused = _products(tasks["of65536"])
    assert all(isinstance(each, Rejected) and "65536 workgroups" in each.reason for each in refused)


def _products(task: Task) -> list[Variant | Rejected]:
    (routine,) = (each for each in routines_for(()) if each.name == "product")
    return [*variants_of(routine, task, CPU)]
