"""Networks that are compiled for two devices into one file."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sartor.errors import DeviceError
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.device import open_device
from sartor.runtime.manifest import read_manifest
from sartor.runtime.output_error import relative_error
from sartor.runtime.session import Session
from sartor.tuning.networks.build_job import NetFiles, SplitNetwork, build_net
from tests.importing import ImportedOf
from tests.plugin.planning.two_devices import CONFIG, selected, transfers


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
