"""Networks for two devices in one file, and manifests that take another's place in a module."""

from __future__ import annotations

import mmap
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from sartor.codegen.ir.target import Target
from sartor.codegen.routines import routines_for
from sartor.config import CompileConfig
from sartor.costing.listing import list_candidates
from sartor.errors import DeviceError
from sartor.frontend.imported_model import ImportedModel
from sartor.planning.guessed_recipe import guessed_recipe
from sartor.planning.recipe import Recipe
from sartor.profiling.builder import Build, Builder
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.archive import damage
from sartor.runtime.driver.device import open_device
from sartor.runtime.manifest import read_manifest
from sartor.runtime.output_error import relative_error
from sartor.runtime.session import Session
from sartor.tuning.networks.build_job import NetFiles, SplitNetwork, build_net
from sartor.tuning.networks.replaced_manifest import replace_manifest
from sartor.tuning.workers.pool import WorkerPool
from tests.importing import ImportedOf
from tests.plugin.planning.two_devices import CONFIG, selected, transfers
from tests.pools import BuildsHere


@pytest.fixture(scope="module")
def mixed(imported_of: ImportedOf, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """LeNet by a plan that puts convolutions on the GPU."""
    imported = imported_of("lenet")
    recipe = selected(imported, transfers(1e-5, 1e-5))
    net = SplitNetwork(recipe.graph, recipe.variants)
    file = tmp_path_factory.mktemp("mixed") / "lenet.vmfb"
    manifest = recipe.manifest(imported, CONFIG.header)
    build_net(net, imported.weights, CONFIG.target, manifest, NetFiles(file, None))
    return file


def test_the_file_has_a_module_per_device_and_its_segments_in_order(mixed: Path) -> None:
    manifest = read_manifest(mixed)
    assert manifest.devices == ("cpu", "vulkan")
    assert [segment.device for segment in manifest.segments] == ["vulkan", "cpu", "vulkan", "cpu"]
    assert {segment.part for segment in manifest.segments} == {"", "vulkan.vmfb"}
    with zipfile.ZipFile(mixed) as archive:
        assert archive.namelist()[-1] == "vulkan.vmfb"


@pytest.mark.vulkan
def test_it_computes_on_both_devices_what_onnx_runtime_does(
    mixed: Path, imported_of: ImportedOf, model_file: Callable[[str], Path]
) -> None:
    try:
        open_device("vulkan")
    except DeviceError as error:
        pytest.skip(str(error))
    samples = imported_of("lenet").samples
    with Session(mixed, threads=1) as session:
        outputs = session.run(None, samples)
    assert relative_error(outputs, ReferenceModel(model_file("lenet"), threads=1)(samples)) < 1e-4


def test_stock_tools_run_a_segment_of_the_cpu(mixed: Path, tmp_path: Path) -> None:
    segments = read_manifest(mixed).segments
    given = {spec.name: spec for each in segments for spec in each.outputs}
    segment = next(each for each in segments if each.device == "cpu")
    value = tmp_path / "x.npy"
    np.save(value, np.ones([size or 0 for size in given[segment.inputs[0]].shape], np.float32))
    tool = Path(sys.executable).parent / "iree-run-module"
    command = [
        str(tool),
        f"--module={mixed}",
        "--device=local-sync",
        f"--function={segment.entry}",
        f"--input=@{value}",
    ]
    assert "result[0]" in subprocess.run(command, check=True, capture_output=True, text=True).stdout


REPLACED_MANIFEST_CONFIG = CompileConfig(target=Target.create("cpu"))


@pytest.fixture(scope="module")
def imported(imported_of: Callable[[str], ImportedModel]) -> ImportedModel:
    return imported_of("residual")


def predicting(imported: ImportedModel, seconds: float) -> Recipe:
    variants = list_candidates(imported.graph, routines_for(()), REPLACED_MANIFEST_CONFIG.target).variants
    found = guessed_recipe(imported, variants, REPLACED_MANIFEST_CONFIG.planning)
    return replace(found, plan=replace(found.plan, predicted=seconds))


@dataclass(frozen=True)
class Built:
    """Two builds of equal code, the second of which was not compiled, and one that was compiled in its place."""

    pool: BuildsHere
    first: Build
    second: Build
    compiled: Build


@pytest.fixture(scope="module")
def built(imported: ImportedModel, tmp_path_factory: pytest.TempPathFactory) -> Built:
    pool, recipes = BuildsHere(), [predicting(imported, each) for each in (0.5, 1.0 / 3.0)]
    folders = [tmp_path_factory.mktemp(name) for name in ("rewritten", "compiled")]
    one, other = (
        Builder(imported, cast(WorkerPool, pool), folder, REPLACED_MANIFEST_CONFIG.header, lambda *_: None)
        for folder in folders
    )
    ((first,), (second,)) = (one.build([recipe]) for recipe in recipes)
    assert pool.compiled == ["plan0"]
    (compiled,) = other.build(recipes[1:])
    return Built(pool, first, second, compiled)


def test_equal_code_with_other_times_is_not_compiled_again(built: Built) -> None:
    found = [read_manifest(each.files.module).plan["predicted"] for each in (built.first, built.second)]
    assert found == [0.5, 1.0 / 3.0]
    assert built.second.files.weight_bytes == built.first.files.weight_bytes > 0


def test_it_is_the_module_that_compiling_gives(built: Built) -> None:
    assert built.second.files.module.read_bytes() == built.compiled.files.module.read_bytes()


def test_its_checksums_are_right(built: Built) -> None:
    with built.second.files.module.open("rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        assert damage(content) is None


def test_other_code_needs_another_compilation(imported: ImportedModel) -> None:
    recipe, later = (predicting(imported, each) for each in (0.5, 0.6))
    other = list_candidates(imported.graph, routines_for(()), REPLACED_MANIFEST_CONFIG.target).variants
    name, task = next((layer.name, layer.task.key) for layer in imported.graph.layers if len(other[layer.task.key]) > 1)
    variant = next(each for each in other[task] if each.descriptor != recipe.variants[name].descriptor)
    assert later.differs_in_times_only(recipe)
    assert not replace(later, variants={**recipe.variants, name: variant}).differs_in_times_only(recipe)
    assert not replace(later, plan=replace(later.plan, ranges={"conv1:0": (0.5, 1)})).differs_in_times_only(recipe)


@pytest.mark.parametrize(("old", "new"), [("long", "longer"), ("not there", "neither 1")])
def test_what_cannot_be_replaced_leaves_the_file(built: Built, old: str, new: str, tmp_path: Path) -> None:
    path = tmp_path / "copy.vmfb"
    path.write_bytes(before := built.first.files.module.read_bytes())
    assert not replace_manifest(path, old, new)
    assert path.read_bytes() == before
