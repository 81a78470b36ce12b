"""One file for the CPU and a GPU with two batch sizes, from one command: it runs right on each device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from sartor.errors import DeviceError, UsageError
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.archive import part_of
from sartor.runtime.driver.device import open_device
from sartor.runtime.manifest import read_manifest
from sartor.runtime.module import open_module
from sartor.runtime.session import Session
from tests.plugin.calling import assert_refused, call, parsed
from tests.tiny_models import Builder

pytestmark = pytest.mark.vulkan

SIZES = (1, 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model and its file, whose weights lie beside it."""
    try:
        open_device("vulkan")
    except DeviceError as error:
        pytest.skip(str(error))
    found = tmp_path_factory.mktemp("devices")
    build = Builder()
    build.op("Add", "y", "x", build.weight(1, 64))
    net = build.model([("x", (1, 64))], [("y", (1, 64))])
    for each in (*net.graph.input, *net.graph.output):
        each.type.tensor_type.shape.dim[0].dim_param = "N"
    onnx.save(net, found / "net.onnx")
    shapes = [option for size in SIZES for option in ("--shape", f"x={size},64")]
    files = ["--external-weights", found / "net.irpa", "--tuning-db", found / "t.db", "--report", found / "r.html"]
    targets = ["--target", "cpu", "--target", "vulkan", "--threads", 1, "--time-budget", 0.01]
    made = parsed(
        call("compile-to-vmfb", found / "net.onnx", "-o", found / "net.vmfb", *targets, *shapes, *files, "--json")
    )
    assert [(each["device"], each["shapes"]["x"][0]) for each in made["plans"]] == [
        (device, size) for device in ("cpu", "vulkan") for size in SIZES
    ]
    assert all(each["error"] < 1e-5 and each["measured_ms"] for each in made["plans"])
    assert made["weight_bytes"] == 64 * 4, "the devices and the shapes read one array"
    return found


@pytest.mark.parametrize("device", ["cpu", "vulkan"])
def test_the_file_runs_right_on_each_device_with_each_shape(folder: Path, device: str) -> None:
    reference = ReferenceModel(folder / "net.onnx", threads=1)
    with Session(folder / "net.vmfb", device=device) as session:
        for size in SIZES:
            x = np.random.default_rng(size).standard_normal((size, 64)).astype(np.float32)
            np.testing.assert_allclose(session.run(None, {"x": x})[0], reference({"x": x})[0], rtol=1e-6)


def test_commands_take_the_plan_of_the_device(folder: Path) -> None:
    shown = parsed(call("sartor", "inspect", folder / "net.vmfb", "--device", "vulkan", "--shape", "x=3,64", "--json"))
    assert (shown["devices"], shown["inputs"][0]["shape"]) == (["vulkan"], [3, 64])
    result = call("sartor", "bench", folder / "net.vmfb", "--device", "vulkan", "--rounds", 1, "--dispatches")
    assert_refused(result, 6, "runs the first part")


def test_the_damaged_program_of_a_device_is_not_parsed(folder: Path, tmp_path: Path) -> None:
    content = (folder / "net.vmfb").read_bytes()
    manifest = read_manifest(folder / "net.vmfb")
    name = next(alternative.part for alternative in manifest.alternatives if alternative.device == "vulkan")
    assert name is not None
    program = bytes(part_of(part_of(content, name) or b"", "module.fb") or b"")
    changed = bytearray(content)
    changed[content.index(program) + len(program) // 2] ^= 1
    (tmp_path / "net.vmfb").write_bytes(changed)
    open_module(folder / "net.vmfb").part(name)
    with pytest.raises(UsageError, match=f"'{name}' in .* is damaged"):
        open_module(tmp_path / "net.vmfb").part(name)


def test_a_page_leads_to_the_report_of_each_plan(folder: Path) -> None:
    text = (folder / "r.html").read_text()
    for number in range(1, 5):
        assert f'href="r-{number}.html"' in text
        assert (folder / f"r-{number}.html").exists()
    assert "vulkan llvmpipe, x=3,64" in text
