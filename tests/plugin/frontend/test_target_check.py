"""Which targets the compiler knows, and whose code this machine runs."""

from __future__ import annotations

import platform

import pytest

from sartor.codegen.ir.target import Target
from sartor.codegen.mlir.dispatches import executable_target
from sartor.errors import CompileError, DeviceError, DisturbedError, UsageError
from sartor.frontend import target_check
from sartor.frontend.target_check import check_measurable, check_target, runs_here
from sartor.runtime.driver.device import DeviceInfo
from sartor.tuning.workers.pool import JobResult, JobStatus, WorkerPool


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
