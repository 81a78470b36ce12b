"""What is said of a model while it is imported, and of targets that the compiler or the machine does not know."""

from __future__ import annotations

import logging
import platform
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import onnx
import pytest

from sartor.codegen.ir.target import Target
from sartor.codegen.mlir.dispatches import executable_target
from sartor.codegen.mlir.machine import answers_about
from sartor.codegen.source_digest import locate
from sartor.config import CompileConfig
from sartor.errors import CompileError, DeviceError, DisturbedError, UsageError
from sartor.frontend import loading, target_check
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.loading import import_network
from sartor.frontend.target_check import check_measurable, check_target, runs_here
from sartor.progress import silent
from sartor.runtime.driver.device import DeviceInfo
from sartor.tuning.selection.problem.pin import Pin
from sartor.tuning.workers.pool import JobResult, JobStatus, WorkerPool
from tests.tiny_models import Builder


def test_weights_that_hold_nan_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    b = Builder()
    weight = np.ones((4, 8), np.float32)
    weight[1, 2] = np.nan
    broken = b.constant(weight)
    b.op("MatMul", "y", b.op("MatMul", "hidden", "x", broken), b.constant(np.ones((8, 2), np.float32)))
    onnx.save(b.model([("x", (3, 4))], [("y", (3, 2))]), tmp_path / "model.onnx")
    with WorkerPool(1) as pool, caplog.at_level(logging.WARNING):
        import_network(tmp_path / "model.onnx", CompileConfig().importing, pool, silent)
    said = [record.getMessage() for record in caplog.records if "NaN" in record.getMessage()]
    assert said == [f"the weight '{broken}' holds NaN; export the model again if that is not meant"]


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, "the model has no layers"), (2, "the layers are l0, l1"), (6, "the layers are l0, l1, l2, l3, l4, …")],
)
def test_a_pin_that_matches_nothing_is_told_the_layers(count: int, said: str) -> None:
    layers = [SimpleNamespace(name=f"l{index}") for index in range(count)]
    graph = SimpleNamespace(layers=layers, all_layers=lambda: layers)
    with pytest.raises(UsageError, match=f"no layer is called 'x' as a pin wants; {said}$"):
        loading._check_pins(cast(ImportedModel, SimpleNamespace(graph=graph)), [Pin("x", "stock")])


def test_the_source_that_is_digested_beside_the_import_exists() -> None:
    """Its name is not imported, and a wrong one would only cost time."""
    assert locate(loading._DIGESTED) is not None


def test_what_is_begun_beside_the_import_may_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for again where it is needed, and fails there."""
    b = Builder()
    b.op("Relu", "y", "x")
    onnx.save(b.model([("x", (3, 4))], [("y", (3, 4))]), tmp_path / "model.onnx")
    asked = []

    def refuse(*arguments: object) -> None:
        asked.append(arguments)
        raise CompileError("no such CPU")

    answers: dict[object, object] = {}
    monkeypatch.setattr(loading, "load_dialects", refuse)
    monkeypatch.setattr(loading, "take_answers", answers.update)
    policy = CompileConfig().importing
    with WorkerPool(1) as pool:
        assert import_network(tmp_path / "model.onnx", policy, pool, silent).graph.layers
    assert asked == [()]
    assert answers == answers_about(policy.target)


@pytest.mark.parametrize(
    ("machine", "architecture", "expected"),
    [
        ("x86_64", "host", True),
        ("x86_64", "x86-64-v3", True),
        ("x86_64", "x86_64:haswell", True),
        ("x86_64", "aarch64:neoverse-n1", False),
        ("AMD64", "x86_64:haswell", True),
        ("arm64", "aarch64:apple-m1", True),
        ("aarch64", "aarch64:neoverse-n1", True),
        ("aarch64", "x86_64:haswell", False),
    ],
)
def test_a_cpu_runs_code_of_its_instruction_set(
    monkeypatch: pytest.MonkeyPatch, machine: str, architecture: str, expected: bool
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(target_check, "cpu_features", lambda _: frozenset())
    assert runs_here(Target.create("cpu", architecture)) == expected


@pytest.mark.parametrize(("present", "expected"), [({"avx2", "fma", "bmi"}, True), ({"avx2"}, False)])
def test_a_cpu_runs_levels_whose_features_it_has(
    monkeypatch: pytest.MonkeyPatch, present: set[str], expected: bool
) -> None:
    """Of those that a module can ask for: code of a level does without the others."""
    host = executable_target(Target.create("cpu"))
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(
        target_check, "cpu_features", lambda text: frozenset(present if text == host else {"avx2", "fma", "movbe"})
    )
    assert runs_here(Target.create("cpu", "x86_64:haswell")) == expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (JobStatus.CRASHED, UsageError),
        (JobStatus.TIMEOUT, CompileError),
        (JobStatus.KILLED, DisturbedError),
        (JobStatus.STARVED, DisturbedError),
    ],
)
def test_a_disturbed_worker_says_nothing_of_a_target(
    monkeypatch: pytest.MonkeyPatch, status: JobStatus, expected: type[Exception]
) -> None:
    result = JobResult("target", status, None, "by SIGKILL", 0.0)
    monkeypatch.setattr(WorkerPool, "map_unordered", lambda *_, **__: iter([result]))
    with pytest.raises(expected) as raised:
        check_target(Target.create("cpu", "x86-64-v3"), WorkerPool(1))
    assert type(raised.value) is expected


def test_devices_are_not_compared_where_one_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target.joined([Target.create("cpu"), Target.create("vulkan")])
    monkeypatch.setattr(target_check, "is_available", lambda device: device == "cpu")
    assert not runs_here(target)
    with pytest.raises(DeviceError, match="does not run vulkan:llvmpipe code, so cpu and vulkan cannot be compared"):
        check_measurable(target)
    check_measurable(target.of("vulkan"))


@pytest.mark.parametrize(
    ("driver", "architecture", "expected"),
    [
        ("llvmpipe (LLVM 15.0.6, 512 bits)", "llvmpipe", True),
        ("llvmpipe (LLVM 15.0.6, 512 bits)", "ampere", False),
        ("llvmpipe (LLVM 15.0.6, 512 bits)", "valhall4", False),
        ("NVIDIA A100", "ampere", True),
    ],
)
def test_software_does_not_stand_for_a_gpu(
    monkeypatch: pytest.MonkeyPatch, driver: str, architecture: str, expected: bool
) -> None:
    monkeypatch.setattr(target_check, "is_available", lambda _: True)
    devices = [DeviceInfo("cpu", "llvmpipe's host"), DeviceInfo("vulkan:0", driver)]
    monkeypatch.setattr(target_check, "list_devices", lambda: devices)
    assert runs_here(Target.create("vulkan", architecture)) == expected
