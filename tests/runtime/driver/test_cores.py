"""Cores, counts of devices, and what a GPU can."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from sartor.cli.options.common import read_architecture
from sartor.errors import DeviceError, UsageError
from sartor.runtime.driver.cores import Cores, cpu_quota, find_cores
from sartor.runtime.driver.counts import (
    CountedAxis,
    Cut,
    count_name,
    counted_axis,
    cut_outputs,
    find_cuts,
    shown_outputs,
)
from sartor.runtime.driver.cuda_capability import compute_capability
from sartor.runtime.driver.signature import TensorSpec

CPU, NODE, GROUPS = "sys/devices/system/cpu", "sys/devices/system/node", "sys/fs/cgroup"


def _written(root: Path, files: Mapping[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")
    return root


def _cpus(cores: list[tuple[int, int]]) -> dict[str, str]:
    """The topology of logical processors, each of a package and a core."""
    files = {}
    for cpu, (package, core) in enumerate(cores):
        files[f"{CPU}/cpu{cpu}/topology/physical_package_id"] = str(package)
        files[f"{CPU}/cpu{cpu}/topology/core_id"] = str(core)
    return files


def test_threads_of_a_core_count_once(tmp_path: Path) -> None:
    _written(tmp_path, _cpus([(0, 0), (0, 1), (0, 0), (0, 1)]))
    assert find_cores(range(4), tmp_path) == Cores(2, 2, 2, 1)
    assert find_cores([1, 3], tmp_path).workers == 1


def test_a_system_that_tells_nothing_has_a_core_for_each_processor(tmp_path: Path) -> None:
    assert find_cores(range(3), tmp_path) == Cores(3, 3, 3, 1)


def test_efficiency_cores_get_no_worker(tmp_path: Path) -> None:
    """As Intel's: two cores of two threads each, and four of one."""
    cores = [(0, 0), (0, 0), (0, 4), (0, 4), (0, 8), (0, 9), (0, 10), (0, 11)]
    kinds = {"sys/devices/cpu_core/cpus": "0-3", "sys/devices/cpu_atom/cpus": "4-7"}
    _written(tmp_path, {**_cpus(cores), **kinds})
    found = find_cores(range(8), tmp_path)
    assert (found.physical, found.performance, found.workers, found.workers_on_all) == (6, 2, 2, 6)
    alone = find_cores([4, 5, 6], tmp_path)
    assert (alone.workers, alone.workers_on_all) == (3, 3), "where nothing else is allowed"
    _written(tmp_path, {"sys/devices/cpu_atom/cpus": "4-5", "sys/devices/cpu_lowpower/cpus": "6-7"})
    assert find_cores(range(8), tmp_path) == found, "some of them are of a third kind"
    _written(tmp_path, {**_unified("/"), f"{GROUPS}/cpu.max": "400000 100000"})
    limited = find_cores(range(8), tmp_path)
    assert (limited.workers, limited.workers_on_all) == (2, 4)
    assert limited.in_front
    kinds = {"cpu_core": "0-1,6-7", "cpu_atom": "2-5", "cpu_lowpower": ""}
    _written(tmp_path, {f"sys/devices/{kind}/cpus": listed for kind, listed in kinds.items()})
    assert not find_cores(range(8), tmp_path).in_front, "as later ones number them"


@pytest.mark.parametrize(
    ("capacities", "workers"), [([446, 446, 1024, 1024], 2), ([1024] * 4, 4), ([446, 871, 871, 1024], 3)]
)
def test_arm_cores_are_told_apart_by_their_capacity(capacities: list[int], workers: int, tmp_path: Path) -> None:
    files = {f"{CPU}/cpu{cpu}/cpu_capacity": str(capacity) for cpu, capacity in enumerate(capacities)}
    _written(tmp_path, {**_cpus([(0, cpu) for cpu in range(4)]), **files})
    found = find_cores(range(4), tmp_path)
    assert (found.workers, found.workers_on_all, found.in_front) == (workers, 4, True)


def test_efficiency_cores_of_other_nodes_get_no_worker(tmp_path: Path) -> None:
    files = {f"{CPU}/cpu{cpu}/cpu_capacity": str(capacity) for cpu, capacity in enumerate([400, 1024, 1024, 400, 400])}
    nodes = {f"{NODE}/node0/cpulist": "0-2", f"{NODE}/node1/cpulist": "3-4"}
    _written(tmp_path, {**_cpus([(0, cpu) for cpu in range(5)]), **files, **nodes})
    found = find_cores(range(5), tmp_path)
    assert (found.workers, found.workers_on_all, found.nodes) == (2, 3, 1)


def test_workers_stay_on_the_node_with_most_cores(tmp_path: Path) -> None:
    nodes = {f"{NODE}/node0/cpulist": "0-1", f"{NODE}/node1/cpulist": "2-4"}
    _written(tmp_path, {**_cpus([(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]), **nodes})
    found = find_cores(range(5), tmp_path)
    assert (found.workers, found.nodes, found.processes) == (3, 2, 5)
    assert find_cores([0, 1, 2], tmp_path).workers == 2


def _unified(path: str, inside: str = "/") -> dict[str, str]:
    mount = f"30 23 0:26 {inside} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
    return {"proc/self/cgroup": f"0::{path}", "proc/self/mountinfo": mount}


def _first_version(path: str, inside: str, mounted: str = "/sys/fs/cgroup/cpu,cpuacct") -> dict[str, str]:
    mount = f"33 25 0:29 {inside} {mounted} rw - cgroup cgroup rw,cpu,cpuacct"
    other = "34 25 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset"
    return {"proc/self/cgroup": f"5:cpuset:/\n4:cpu,cpuacct:{path}", "proc/self/mountinfo": f"{other}\n{mount}"}


OLD = f"{GROUPS}/cpu,cpuacct"


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({**_unified("/"), f"{GROUPS}/cpu.max": "250000 100000"}, 2.5),
        ({**_unified("/"), f"{GROUPS}/cpu.max": "max 100000"}, None),
        ({**_unified("/"), f"{GROUPS}/cpu.max": "what"}, None),
        ({}, None),
        # Groups within groups: the tightest one counts, wherever it is.
        (
            {
                **_unified("/pod/box"),
                f"{GROUPS}/pod/cpu.max": "150000 100000",
                f"{GROUPS}/pod/box/cpu.max": "400000 100000",
            },
            1.5,
        ),
        (
            {
                **_unified("/pod/box"),
                f"{GROUPS}/pod/cpu.max": "max 100000",
                f"{GROUPS}/pod/box/cpu.max": "20000 10000",
            },
            2.0,
        ),
        # The path is the host's, and the mount shows the container's part.
        ({**_unified("/docker/abc", "/docker/abc"), f"{GROUPS}/cpu.max": "300000 100000"}, 3.0),
        (
            {
                **_first_version("/docker/abc", "/docker/abc"),
                f"{OLD}/cpu.cfs_quota_us": "50000",
                f"{OLD}/cpu.cfs_period_us": "100000",
            },
            0.5,
        ),
        (
            {
                **_first_version("/a/b", "/"),
                f"{OLD}/a/cpu.cfs_quota_us": "400000",
                f"{OLD}/a/cpu.cfs_period_us": "100000",
                f"{OLD}/a/b/cpu.cfs_quota_us": "-1",
                f"{OLD}/a/b/cpu.cfs_period_us": "100000",
            },
            4.0,
        ),
        # Without a list of mounts, where they usually are.
        (
            {
                "proc/self/cgroup": "3:cpu:/",
                f"{GROUPS}/cpu/cpu.cfs_quota_us": "100000",
                f"{GROUPS}/cpu/cpu.cfs_period_us": "50000",
            },
            2.0,
        ),
    ],
)
def test_quotas_of_containers(files: dict[str, str], quota: float | None, tmp_path: Path) -> None:
    assert cpu_quota(_written(tmp_path, files)) == quota


@pytest.mark.parametrize(("quota", "workers"), [("150000", 1), ("299999", 2), ("50000", 1), ("900000", 4)])
def test_workers_keep_within_the_quota(quota: str, workers: int, tmp_path: Path) -> None:
    files = {**_cpus([(0, cpu) for cpu in range(4)]), **_unified("/"), f"{GROUPS}/cpu.max": f"{quota} 100000"}
    assert find_cores(range(4), _written(tmp_path, files)).workers == workers


ODD = "a:1:b\nc"


def test_the_name_says_what_is_counted() -> None:
    assert count_name("boxes", 1) == "sartor.count:1:boxes"
    assert counted_axis(count_name(ODD, 2)) == CountedAxis(ODD, 2)
    assert counted_axis("sartor.count:boxes") is None
    assert counted_axis("boxes") is None
    assert counted_axis(f"sartor.count:{'9' * 5000}:boxes") is None


def test_only_outputs_that_are_there_are_cut() -> None:
    assert find_cuts(["x", "y", count_name("y", 1), count_name("z", 0)]) == {1: Cut(1, 2)}


def test_outputs_are_cut_and_counts_are_hidden() -> None:
    full = np.arange(6).reshape(2, 3)
    whole, cut = cut_outputs(["x", "y", count_name("y", 1)], [full, full, np.array(2)])
    np.testing.assert_array_equal(whole, full)
    np.testing.assert_array_equal(cut, [[0, 1], [3, 4]])
    assert cut.flags.c_contiguous
    (empty,) = cut_outputs(["y", count_name("y", 0)], [full, np.array(0)])
    assert empty.shape == (0, 3)


def test_sizes_that_are_counted_are_open() -> None:
    specs = [TensorSpec("y", "float32", (2, 3)), TensorSpec(count_name("y", 1), "int64", ())]
    assert shown_outputs(specs) == (TensorSpec("y", "float32", (2, None)),)


def driver(major: int, minor: int, status: int = 0) -> SimpleNamespace:
    """A driver with one GPU."""

    def attribute(value: ctypes.c_int, which: int, device: ctypes.c_int) -> int:
        ctypes.cast(value, ctypes.POINTER(ctypes.c_int))[0] = {75: major, 76: minor}[which]
        return 0

    return SimpleNamespace(
        cuInit=lambda flags: status, cuDeviceGet=lambda device, number: 0, cuDeviceGetAttribute=attribute
    )


def test_native_is_the_gpu_that_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver(8, 9))
    assert compute_capability() == (8, 9)
    assert read_architecture("cuda", "native") == "sm_89"
    assert read_architecture("cuda", "sm_80") == "sm_80"
    assert read_architecture("vulkan", None) is None


def test_a_gpu_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver(7, 5))
    with pytest.raises(UsageError, match=r"compute capability 7\.5, sm_80"):
        read_architecture("cuda", "native")


def test_a_driver_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver(8, 0, status=100))
    with pytest.raises(DeviceError, match="refuses cuInit with status 100"):
        compute_capability()


def test_no_driver_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(DeviceError, match="name the architecture, for example sm_80"):
        compute_capability()
