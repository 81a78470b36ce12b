"""Networks of several segments in one file, on one device or on two."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sartor.errors import DeviceError, UsageError
from sartor.runtime import opening
from sartor.runtime.driver.device_array import DeviceArray, upload
from sartor.runtime.driver.native_device import NativeDevice
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import Array, TensorSpec
from sartor.runtime.manifest import SEGMENTS_FORMAT, Manifest
from sartor.runtime.module import check_module
from sartor.runtime.segments import program as segments_program
from sartor.runtime.segments.packing import pack
from sartor.runtime.segments.record import Segment
from sartor.runtime.session import Session

Make = Callable[..., Path]
MakeManifest = Callable[..., Manifest]
Feeds = dict[str, Array]
_PART = "other.vmfb"


def _specs(*names: str) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name, "float32", (4, 6)) for name in names)


def _segments(other: str) -> tuple[Segment, ...]:
    """Sums and products: of the inputs, of these two on the other device, and of all."""
    entry = "main_graph"
    return (
        Segment(entry, "cpu", ("x", "größe"), _specs("a", "b")),
        Segment(entry, other, ("a", "b"), _specs("c", "product"), _PART),
        Segment(entry, "cpu", ("x", "größe"), _specs("d", "e")),
        Segment(entry, "cpu", ("c", "a"), _specs("sum", "f")),
    )


def _expected(feeds: Feeds) -> tuple[Array, Array]:
    a, b = np.add(feeds["x"], feeds["größe"]), np.multiply(feeds["x"], feeds["größe"])
    return np.add(np.add(a, b), a), np.multiply(a, b)


@pytest.fixture(scope="session")
def segmented(compile_mlir: Make, make_manifest: MakeManifest, tmp_path_factory: pytest.TempPathFactory) -> Make:
    """``segmented(device)``: a file whose second module is for a device."""
    folder = tmp_path_factory.mktemp("segmented")

    def make(device: str) -> Path:
        target = folder / f"{device}.vmfb"
        if not target.exists():
            shutil.copy(compile_mlir("model", _manifest(make_manifest, device).to_json()), target)
            pack(target, {_PART: compile_mlir("model", make_manifest().to_json(), device)})
        return target

    return make


def _manifest(make_manifest: MakeManifest, device: str, segments: tuple[Segment, ...] | None = None) -> Manifest:
    found = _segments(device) if segments is None else segments
    return make_manifest(segments=found, devices=("cpu", device), format=SEGMENTS_FORMAT)


def test_segments_of_one_device_run_in_order(segmented: Make, feeds: Feeds) -> None:
    file = segmented("cpu")
    with Session(file) as mapped, Session(file.read_bytes()) as given:
        for session in (mapped, given):
            for got, wanted in zip(session.run(None, feeds), _expected(feeds), strict=True):
                np.testing.assert_allclose(got, wanted, rtol=1e-6)
            [product] = session.run_async(["product"], feeds).result()
            np.testing.assert_allclose(product, _expected(feeds)[1], rtol=1e-6)


def test_segments_of_two_devices_run_in_order(segmented: Make, feeds: Feeds, vulkan: str) -> None:
    with Session(segmented(vulkan)) as session:
        arrays = {name: session.to_device(array) for name, array in feeds.items()}
        outputs = session.run_device(None, arrays)
        assert all(output.device is session.device for output in outputs)
        for got, wanted in zip(outputs, _expected(feeds), strict=True):
            np.testing.assert_allclose(got.to_host(), wanted, rtol=1e-6)


def test_stock_tools_run_each_segment(segmented: Make, tmp_path: Path) -> None:
    file, part = segmented("cpu"), tmp_path / _PART
    check_module(file)
    with zipfile.ZipFile(file) as archive:
        part.write_bytes(archive.read(_PART))
    tool = Path(sys.executable).parent / "iree-run-module"
    for module in (file, part):
        command = [str(tool), f"--module={module}", "--device=local-sync", "--function=main_graph"]
        given = ["--input=4x6xf32=2", "--input=4x6xf32=3", "--expected_output=4x6xf32=5", "--expected_output=4x6xf32=6"]
        subprocess.run([*command, *given], check=True, capture_output=True)


def test_independent_segments_and_transfers_overlap(
    segmented: Make, feeds: Feeds, monkeypatch: pytest.MonkeyPatch, vulkan: str
) -> None:
    """The second and the third segment wait for each other, which only ends if both run at the same time."""
    meeting = threading.Barrier(2, timeout=30)
    invoke, calls = Program.invoke, list[str]()

    def meet(self: Program, function: str, views: Any) -> list[Any]:
        calls.append(str(self.device))
        if len(calls) in (2, 3):
            meeting.wait()
        return invoke(self, function, views)

    monkeypatch.setattr(Program, "invoke", meet)
    with Session(segmented(vulkan)) as session:
        session.run(None, feeds)
    assert sorted(calls)[-1].startswith("vulkan")
    assert len(calls) == 4


def test_a_tensor_is_moved_to_a_device_once(
    segmented: Make, make_manifest: MakeManifest, feeds: Feeds, monkeypatch: pytest.MonkeyPatch, vulkan: str
) -> None:
    moved: list[NativeDevice] = []

    def count(array: Array, device: NativeDevice) -> DeviceArray:
        moved.append(device)
        return upload(array, device)

    monkeypatch.setattr(segments_program, "upload", count)
    again = Segment("main_graph", vulkan, ("a", "b"), _specs("g", "h"), _PART)
    manifest = _manifest(make_manifest, vulkan, (*_segments(vulkan), again))
    monkeypatch.setattr(opening, "find_manifest", lambda _, whole=True: manifest)
    with Session(segmented(vulkan)) as session:
        session.run(None, feeds)
    # a and b to the GPU, c and the product back.
    assert len(moved) == 4


def test_a_failing_device_is_an_error_of_the_run(
    segmented: Make, feeds: Feeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise DeviceError("the device was lost")

    with Session(segmented("cpu")) as session:
        with monkeypatch.context() as patch:
            patch.setattr(Program, "invoke", fail)
            with pytest.raises(DeviceError, match="the device was lost"):
                session.run(None, feeds)
        assert len(session.run(None, feeds)) == 2


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"part": "absent.vmfb"}, "has no part 'absent.vmfb', which its manifest names"),
        ({"entry": "absent"}, "exports no function 'absent'"),
    ],
)
def test_a_segment_that_is_not_in_the_file_is_refused(
    segmented: Make,
    make_manifest: MakeManifest,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, Any],
    complaint: str,
) -> None:
    first, second, *others = _segments("cpu")
    manifest = _manifest(make_manifest, "cpu", (first, replace(second, **change), *others))
    monkeypatch.setattr(opening, "find_manifest", lambda _, whole=True: manifest)
    with pytest.raises(UsageError, match=complaint):
        Session(segmented("cpu"))
