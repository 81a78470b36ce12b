"""Kernels that need more workgroups than are counted are refused."""

from __future__ import annotations

import pytest

from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Rejected, Variant, variant_of, variants_of
from sartor.codegen.kernels.emit.workgroup_counts import check_groups
from sartor.codegen.kernels.tensor_cores.tiling import BlockTiling
from sartor.codegen.routines import routines_for
from sartor.codegen.routines.cuda.implicit import Implicit
from tests.codegen.routines.harness import layers
from tests.codegen.routines.layer_cases import Cases

CPU, CUDA = Target.create("cpu"), Target.create("cuda", "sm_90")
NVIDIA, AMD, MESA = (Target.create("vulkan", name) for name in ("ampere", "rdna3", "llvmpipe"))


@pytest.mark.parametrize(
    ("target", "within", "beyond"),
    [
        (CPU, (1 << 20, 1 << 20, 65535), (1, 1, 65536)),
        (CUDA, (1 << 20, 65535, 65535), (1, 65536, 1)),
        (NVIDIA, (1 << 20, 65535, 65535), (1, 1, 65536)),
        (AMD, (1 << 20, 65535, 65535), (1, 65536, 1)),
        (MESA, (65535, 65535, 65535), (65536, 1, 1)),
    ],
    ids=str,
)
def test_each_dimension_has_its_limit(
    target: Target, within: tuple[int, int, int], beyond: tuple[int, int, int]
) -> None:
    check_groups(within, target)
    with pytest.raises(ValueError, match="65536 workgroups"):
        check_groups(beyond, target)


def test_kernels_refuse_batches_of_which_they_would_not_compute_the_last() -> None:
    cases = Cases()
    for batches in (65535, 65536):
        cases.product(f"of{batches}", (batches, 2, 4), (batches, 4, 8), weight=False, bias=False)
    tasks = {layer.name: layer.task for layer, _ in layers({"batches": cases.model})}
    assert any(isinstance(product, Variant) for product in _products(tasks["of65535"]))
    refused = _products(tasks["of65536"])
    assert all(isinstance(each, Rejected) and "65536 workgroups" in each.reason for each in refused)


def test_the_kernel_of_a_sum_s_parts_is_refused_too() -> None:
    """Parts of each batch are counted along one dimension."""
    cases = Cases()
    cases.product("split", (32768, 16, 128), (32768, 128, 16), weight=False, bias=False)
    ((layer, _),) = layers({"split": cases.model})
    for split, refused in ((1, False), (2, True)):
        tiling = BlockTiling(32, 32, 64, 2, 2, 3, split)
        found = variant_of(Implicit(), layer.task, tiling.parameters(), CUDA)
        assert isinstance(found, Rejected) == refused
    assert isinstance(found, Rejected)
    assert "65536 workgroups" in found.reason


def test_large_images_have_tiles_of_few_rows() -> None:
    cases = Cases()
    cases.convolution("large", (1, 16, 2160, 3840), 16)
    ((layer, _),) = layers({"large": cases.model})
    assert isinstance(variant_of(Implicit(), layer.task, BlockTiling(64, 32, 64, 2, 2, 3).parameters(), CUDA), Variant)


def _products(task: Task) -> list[Variant | Rejected]:
    (routine,) = (each for each in routines_for(()) if each.name == "product")
    return [*variants_of(routine, task, CPU)]
