from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from sartor.errors import DeviceError, UsageError
from sartor.runtime.driver import device as devices
from sartor.runtime.driver.cores import Cores
from sartor.runtime.driver.device import (
    MAX_THREADS,
    default_threads,
    device_settings,
    list_devices,
    open_device,
    physical_cores,
    threads_on_all_cores,
    tool_device,
)

TASKS = Path("/proc/self/task")


def _workers() -> int:
    return sum("iree-worker" in (task / "comm").read_text() for task in TASKS.iterdir())


def _workers_become(expected: int) -> bool:
    # A thread names itself once it runs.
    deadline = time.monotonic() + 10
    while _workers() != expected and time.monotonic() < deadline:
        time.sleep(0.01)
    return _workers() == expected


def test_the_cpu_is_always_listed() -> None:
    assert list_devices()[0].spec == "cpu"
    assert list_devices()[0].name


def test_listed_devices_can_be_opened() -> None:
    for info in list_devices():
        assert str(open_device(info.spec)).startswith(info.spec)


@pytest.mark.skipif(not TASKS.is_dir(), reason="threads are counted in /proc")
def test_every_thread_count_is_had_at_once() -> None:
    before = _workers()
    kept = []
    for threads, workers in [(1, 0), (11, 11), (5, 5), (11, 0)]:
        kept.append(open_device(threads=threads, spin_us=1))
        assert _workers_become(before + workers)
        before += workers


@pytest.mark.skipif(not TASKS.is_dir(), reason="threads are counted in /proc")
def test_workers_stay_for_whoever_wants_as_many() -> None:
    """Closing a device waits for its workers, which may wait for who closes it."""
    before = _workers()
    for _ in range(3):
        open_device(threads=9)
        gc.collect()
        assert _workers_become(before + 9)


def test_equal_settings_share_a_device() -> None:
    assert open_device(threads=2) is open_device("cpu", 2)
    assert open_device(threads=2) is not open_device(threads=2, spin_us=10)
    assert open_device() is open_device(threads=default_threads())


@pytest.mark.parametrize(
    ("spec", "threads", "complaint"),
    [
        ("gpu", None, "'gpu' is not a device"),
        ("cpu:1", None, "'cpu:1' is not a device"),
        ("vulkan:", None, "'vulkan:' is not a device"),
        (f"vulkan:{'9' * 5000}", None, "is not a device"),
        ("cpu", 0, "1 to 256 threads, but 0"),
        ("cpu", MAX_THREADS + 1, "1 to 256 threads, but 257"),
        ("cpu", 1.5, "1 to 256 threads, but 1.5"),
        ("cpu", True, "1 to 256 threads, but True"),
        ("cpu", "2", "1 to 256 threads, but '2'"),
        (0, None, "'0' is not a device"),
        ("vulkan", 2, "settings of the cpu device"),
    ],
)
def test_settings_without_sense_are_refused(spec: Any, threads: Any, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        open_device(spec, threads)


def test_spinning_is_a_flag_of_the_workers() -> None:
    with pytest.raises(UsageError, match="not -1"):
        device_settings(spin_us=-1)
    half: Any = 0.5
    with pytest.raises(UsageError, match=r"not 0\.5"):
        device_settings(spin_us=half)
    assert "--task_worker_spin_us=50" in device_settings(threads=2, spin_us=50).flags
    assert device_settings(threads=1).flags == ()


def _on(monkeypatch: pytest.MonkeyPatch, cores: Cores, allowed: int) -> None:
    """Pretend to be on other cores, of which so many logical ones are allowed."""
    monkeypatch.setattr(devices, "allowed_cpus", lambda: set(range(allowed)))
    monkeypatch.setattr(devices, "find_cores", lambda _: cores)
    monkeypatch.setattr(os, "cpu_count", lambda: 32)


def test_workers_are_pinned_only_where_each_has_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    _on(monkeypatch, Cores(16, 16, 16, 1), 32)
    assert "--task_topology_max_group_count=16" in device_settings().flags
    assert "--task_topology_group_count=17" in device_settings(threads=17).flags
    _on(monkeypatch, Cores(1, 1, 1, 1), 1)
    assert "--task_topology_group_count=2" in device_settings(threads=2).flags
    assert device_settings().threads == 1


def test_workers_are_on_fast_cores_of_one_node_where_these_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    _on(monkeypatch, Cores(24, 16, 8, 2), 32)
    high, here = "--task_topology_performance_level=high", "--task_topology_nodes=current"
    assert device_settings().threads == 8
    assert {high, here} <= {*device_settings().flags}
    assert high in device_settings(threads=16).flags
    assert here not in device_settings(threads=16).flags
    assert high not in device_settings(threads=24).flags


def test_workers_on_all_cores_have_one_each_and_others_go_where_the_system_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """IREE takes cores by number, the little ones of an Arm first, and keeps a flag until it is set again."""
    _on(monkeypatch, Cores(24, 8, 8, 1, efficiency=16), 32)
    high, every = "--task_topology_performance_level=high", "--task_topology_performance_level=any"
    assert (device_settings().threads, threads_on_all_cores()) == (8, 24)
    assert high in device_settings().flags
    assert {every, "--task_topology_max_group_count=24", "--task_topology_nodes=current"} <= {
        *device_settings(threads=24).flags
    }
    assert "--task_topology_group_count=20" in device_settings(threads=20).flags
    _on(monkeypatch, Cores(24, 8, 8, 1, efficiency=16, in_front=False), 32)
    assert "--task_topology_group_count=8" in device_settings().flags
    assert "--task_topology_max_group_count=24" in device_settings(threads=24).flags


def test_a_quota_limits_the_usual_number_of_threads_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    _on(monkeypatch, Cores(16, 16, 16, 1, quota=2.5), 32)
    assert (device_settings().threads, physical_cores()) == (2, 2)
    assert "--task_topology_max_group_count=8" in device_settings(threads=8).flags


def test_missing_gpus_are_a_sentence() -> None:
    for kind in ("vulkan", "cuda"):
        with pytest.raises(DeviceError, match=f"no {kind} device can be used: |no device '{kind}:99'"):
            open_device(f"{kind}:99")


def test_tools_are_told_the_device(vulkan: str) -> None:
    assert tool_device(device_settings(threads=1)) == "local-sync"
    assert tool_device(device_settings(threads=2)) == "local-task"
    assert tool_device(device_settings(vulkan)).startswith("vulkan://")
    assert any(info.spec == "vulkan:0" and info.name for info in list_devices())


def _opens_a_device() -> None:
    signal.alarm(20)
    assert open_device(threads=2)
    os._exit(0)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="there is no fork here")
def test_a_forked_child_opens_its_own_device() -> None:
    kept = open_device(threads=2)
    child = multiprocessing.get_context("fork").Process(target=_opens_a_device)
    # Another thread may be opening one.
    with devices._OPENING:
        child.start()
    child.join()
    assert (child.exitcode, kept is open_device(threads=2)) == (0, True)


@pytest.mark.skipif(not TASKS.is_dir(), reason="processor times of threads are counted in /proc")
def test_a_driver_that_computes_on_processors_is_recognised(vulkan: str) -> None:
    names = {info.spec: info.name for info in list_devices()}
    assert open_device(vulkan).software == names["vulkan:0"].startswith(("llvmpipe", "SwiftShader"))
    assert not open_device("cpu").software
