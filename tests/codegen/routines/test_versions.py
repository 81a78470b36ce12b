"""Convolutions of any size in two versions, of which the number of places chooses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import F32, Task, TensorType
from sartor.codegen.ir.packing import Beside, Packing, Reshape, Transpose
from sartor.codegen.ir.sizes.dims import Symbol
from sartor.codegen.ir.thresholds import thresholds_of
from sartor.codegen.ir.variants.routine import Parameters, Variant, integer, variant_of
from sartor.codegen.kernels.open_sizes.costs import FEW, LEAST, MANY
from sartor.codegen.kernels.open_sizes.open_convolution import OpenConvolution
from sartor.codegen.routines.open_sizes.convolution import OpenConvolutionKernel
from sartor.codegen.routines.open_sizes.versions import OpenVersions
from sartor.codegen.routines.open_sizes.winograd import SMALL_SIDES, OpenWinogradKernel
from sartor.frontend.imported_model import ImportedModel
from sartor.tuning.cost_tables.problem_builder import _repeated
from sartor.tuning.records.network import Network, network_of
from tests.dialect_passes.test_open_images import BATCH, HEIGHT, WIDTH, Fused, fused, shape_of, wrong_sizes
from tests.dialect_passes.test_opening import TARGET, opened
from tests.open_models import named, saved
from tests.tiny_models import Builder

LEAST_PLACES = 48
# Below the threshold, as many places, and more; in several images, too.
SIZES = [(1, 1, 1), (1, 1, 47), (1, 45, 1), (1, 6, 8), (1, 7, 7), (3, 4, 4), (3, 3, 5), (2, 24, 1), (3, 45, 57)]
ROUTINES = {
    "convolution": OpenVersions("convolution_or_winograd", few=OpenConvolutionKernel()),
    "winograd": OpenVersions("winograd_by_size", few=OpenWinogradKernel(sides=SMALL_SIDES)),
}


def network(folder: Path) -> tuple[Path, LayerGraph, ImportedModel]:
    build = Builder()
    x = build.op("Relu", "r0", build.conv("stem", "x", (3, 20), kernel=1))
    wide = build.op("Conv", "wide", x, build.weight(37, 20, 3, 3), build.weight(37), pads=[1, 1, 1, 1])
    side = build.conv("side", "x", (3, 37), kernel=1)
    build.op("Identity", "y", build.op("Relu", "r1", build.op("Add", "sum", wide, side)))
    shapes = {"x": ["n", 3, "height", "width"], "y": [*"nchw"]}
    path = saved(named(build.model([("x", [1] * 4)], [("y", [1] * 4)]), shapes), folder / "model.onnx")
    return path, *opened(path, [BATCH, HEIGHT, WIDTH], shape_of)


def in_versions(graph: LayerGraph, routine: OpenVersions, threshold: int) -> Fused:
    """All fusions; of the one by Winograd's method both versions."""
    found = fused(graph, 0, "open_winograd")
    (layer,) = (each for each in found.graph.layers if found.code[each.name].routine == "open_winograd")
    variant = variant_of(routine, layer.task, parameters(routine, layer.task, threshold), TARGET)
    assert isinstance(variant, Variant), variant
    return Fused(found.graph, {**found.code, layer.name: variant})


def parameters(routine: OpenVersions, task: Task, threshold: int) -> Parameters:
    few, many = (each.parameters(task, TARGET) for each in (routine.few, routine.many))
    assert isinstance(few, list)
    assert isinstance(many, list)
    large = max(many, key=lambda each: (each["height"], each["width"]))
    own = {f"{prefix}{name}": value for prefix, one in ((FEW, few[0]), (MANY, large)) for name, value in one.items()}
    return {**own, LEAST: threshold}


@pytest.mark.parametrize("few", ROUTINES)
def test_both_versions_are_right_on_both_sides_of_the_threshold(few: str, tmp_path: Path) -> None:
    path, graph, model = network(tmp_path)
    found = in_versions(graph, ROUTINES[few], LEAST_PLACES)
    assert wrong_sizes(found.session(model, tmp_path / "model.vmfb"), path, SIZES, 1e-4) == []


def test_the_version_for_few_places_runs_below_the_threshold_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that computes nothing is noticed at the sizes that run it, and at no others."""
    path, graph, model = network(tmp_path)
    found = in_versions(graph, ROUTINES["convolution"], LEAST_PLACES)

    monkeypatch.setattr(OpenConvolution, "write", lambda *_: None)
    wrong = wrong_sizes(found.session(model, tmp_path / "wrong.vmfb"), path, SIZES, 1e-4)
    assert wrong == [sizes for sizes in SIZES if np.prod(sizes) < LEAST_PLACES]


def test_what_lies_in_a_file_twice_is_known(tmp_path: Path) -> None:
    """The filters of the version for few places, which are smaller: 180 rows of 37 columns, in vectors."""
    _, graph, _ = network(tmp_path)
    found = in_versions(graph, ROUTINES["convolution"], LEAST_PLACES)
    sizes = {layer.name: _repeated(layer, found.code[layer.name]) for layer in found.graph.layers}
    (twice,) = (size for size in sizes.values() if size)
    assert 180 * 37 * 4 <= twice <= 180 * 64 * 4


def test_weights_are_packed_for_both_versions_one_behind_the_other() -> None:
    weight = np.arange(6, dtype=np.float32).reshape(2, 3)
    packing = Packing((Beside(Packing((Transpose((1, 0)),)), Packing((Reshape((6,)),))),))
    assert packing.apply(weight).tolist() == [0, 3, 1, 4, 2, 5, *range(6)]
    assert packing.type_of(TensorType((2, 3), F32)) == TensorType((12,), F32)


def test_a_range_of_many_sizes_begins_with_the_version_for_few_places(tmp_path: Path) -> None:
    """Filters of large tiles are most of what an image of a few places reads; for large images alone there is nothing
    to choose."""
    build = Builder()
    build.op("Conv", "y", build.conv("x1", "x", (3, 128), kernel=1), build.weight(128, 128, 3, 3), pads=[1, 1, 1, 1])
    dims: dict[str, list[int | str]] = {"x": [1, 3, 4, "width"], "y": [1, 128, 4, "w"]}
    path = saved(named(build.model([("x", [1] * 4)], [("y", [1] * 4)]), dims), tmp_path / "model.onnx")

    def listed(least: int, most: int) -> list[Parameters]:
        graph, _ = opened(path, [Symbol("width", least, most)], lambda sizes: {"x": (1, 3, 4, sizes["width"])})
        (task,) = (fusion.layer.task for fusion in graph.fusions if fusion.layer.nodes == ("y",))
        found = ROUTINES["winograd"].parameters(task, TARGET)
        return found if isinstance(found, list) else []

    thresholds = [integer(each[LEAST]) for each in listed(8, 320)]
    assert thresholds
    assert all(8 * 4 < least < 320 * 4 for least in thresholds)
    assert listed(256, 320) == []


def test_sizes_on_both_sides_of_a_threshold_are_a_step_apart(tmp_path: Path) -> None:
    _, graph, _ = network(tmp_path)
    found = in_versions(graph, ROUTINES["winograd"], LEAST_PLACES)
    (threshold,) = thresholds_of(found.graph, found.code, [BATCH, HEIGHT, WIDTH])
    below, first = (
        [sizes[each.name] for each in (BATCH, HEIGHT, WIDTH)] for sizes in (threshold.below, threshold.first)
    )
    assert np.prod(below) < LEAST_PLACES <= np.prod(first)
    assert sum(np.subtract(first, below)) == 1
    network_told = Network.from_json(network_of(found.graph, found.code, "cpu").to_json(), "the module")
    assert [layer.changes for layer in network_told.layers if layer.changes] == [threshold.text]


def test_a_threshold_beyond_all_sizes_is_none(tmp_path: Path) -> None:
    _, graph, _ = network(tmp_path)
    found = in_versions(graph, ROUTINES["winograd"], 3 * 45 * 57 + 1)
    assert thresholds_of(found.graph, found.code, [BATCH, HEIGHT, WIDTH]) == []
