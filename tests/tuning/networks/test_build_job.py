"""Networks that are compiled for two devices into one file."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Variant, dtype_of
from sartor.codegen.routines.iree.channels_last import ChannelsLast
from sartor.codegen.routines.iree.stock import Stock
from sartor.config import CompileConfig
from sartor.errors import DeviceError
from sartor.frontend.imported_model import ImportedModel
from sartor.planning.recipe import Recipe, unsplit_recipe
from sartor.runtime.driver.device import open_device
from sartor.runtime.manifest import read_manifest
from sartor.runtime.output_error import relative_error
from sartor.runtime.reference import OnnxRuntimeReference
from sartor.runtime.session import Session
from sartor.tuning.networks.build_job import NetFiles, SplitNetwork, build_net

ImportedOf = Callable[[str], ImportedModel]
TARGET = Target.joined([Target.create("cpu"), Target.create("vulkan")])


def _variant(task: Task, device: str) -> Variant:
    """Channels last on the CPU where that applies, so that values are converted after they crossed."""
    target = TARGET.of(device)
    built = ChannelsLast().build(task, {}, target) if device == "cpu" else None
    if not isinstance(built, Implementation):
        built = Stock().build(task, {}, target)
    assert isinstance(built, Implementation)
    return Variant(f"{device}:f32/{task.kind}.some", device, dtype_of(task), built)


@pytest.fixture(scope="module")
def mixed(imported_of: ImportedOf, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """LeNet, every other layer on the GPU."""
    imported = imported_of("lenet")
    layers = enumerate(imported.graph.layers)
    variants = {layer.name: _variant(layer.task, "vulkan" if index % 2 else "cpu") for index, layer in layers}
    config = CompileConfig(target=TARGET, threads=1)
    plan = replace(unsplit_recipe(imported, config.planning).plan, unsplit=False)
    manifest = Recipe(plan, imported.graph, variants).manifest(imported, config.header)
    file = tmp_path_factory.mktemp("mixed") / "lenet.vmfb"
    build_net(SplitNetwork(imported.graph, variants), imported.weights, config.target, manifest, NetFiles(file, None))
    return file


def test_the_file_has_a_module_per_device_and_its_segments_in_order(mixed: Path) -> None:
    manifest = read_manifest(mixed)
    assert manifest.devices == ("cpu", "vulkan")
    assert [each.device for each in manifest.segments[:3]] == ["cpu", "vulkan", "cpu"]
    assert {each.part for each in manifest.segments} == {"", "vulkan.vmfb"}
    with zipfile.ZipFile(mixed) as archive:
        assert archive.namelist()[-1] == "vulkan.vmfb"


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
    assert relative_error(outputs, OnnxRuntimeReference(model_file("lenet"), threads=1)(samples)) < 1e-4


def test_stock_tools_run_the_first_segment(mixed: Path, imported_of: ImportedOf, tmp_path: Path) -> None:
    segment = read_manifest(mixed).segments[0]
    value = tmp_path / "x.npy"
    np.save(value, imported_of("lenet").samples[segment.inputs[0]])
    tool = Path(sys.executable).parent / "iree-run-module"
    command = [
        str(tool),
        f"--module={mixed}",
        "--device=local-sync",
        f"--function={segment.entry}",
        f"--input=@{value}",
    ]
    assert "result[0]" in subprocess.run(command, check=True, capture_output=True, text=True).stdout
