"""Which cores a process may use, and how many workers fit them, as Linux tells: affinity, quotas, kinds, and nodes.

A container's quota is time and not cores: threads beyond it are all stopped for the rest of each period.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_CPUS, _NODES = Path("sys/devices/system/cpu"), Path("sys/devices/system/node")
# Intel's kinds of cores, as performance counters list them.
_FAST = Path("sys/devices/cpu_core/cpus")
_SLOW = (Path("sys/devices/cpu_atom/cpus"), Path("sys/devices/cpu_lowpower/cpus"))
_GROUPS, _MOUNTS = Path("proc/self/cgroup"), Path("proc/self/mountinfo")
_USUAL_MOUNTS = {"cgroup2": ("sys/fs/cgroup",), "cgroup": ("sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct")}
# Arm's cores have a capacity, the fastest ones 1024. Prime and big cores differ by less, big and little ones by more.
_PERFORMANCE = 0.75
_UNIFIED, _QUOTA = "cgroup2", "cpu"


@dataclass(frozen=True)
class Cores:
    """The cores that a process may use.

    Attributes:
        physical: number of physical cores with a logical one that its affinity allows, at least 1.
        performance: how many of these are no efficiency cores.
        node: how many of the latter are on one NUMA node, the one with most.
        nodes: number of NUMA nodes with such cores.
        quota: processors' worth of time that its groups may take; None for no limit.
        efficiency: how many efficiency cores are on the node of ``node``.
        in_front: whether the performance cores have the lowest numbers, or capacities that tell them apart.
    """

    physical: int
    performance: int
    node: int
    nodes: int
    quota: float | None = None
    efficiency: int = 0
    in_front: bool = True

    @property
    def workers(self) -> int:
        """Number of workers for which each has a fast core of its own, with memory in common, and is never stopped."""
        return self.within_quota(self.node)

    @property
    def workers_on_all(self) -> int:
        """The same number with a worker on each efficiency core, too."""
        return self.within_quota(self.node + self.efficiency)

    @property
    def processes(self) -> int:
        """Number of processes that compute at once without any of them being stopped."""
        return self.within_quota(self.physical)

    def within_quota(self, count: int) -> int:
        """As many threads as compute at once without being stopped, at most ``count``."""
        return count if self.quota is None else max(1, min(count, int(self.quota)))


def find_cores(allowed: Iterable[int], root: Path = Path("/")) -> Cores:
    """The cores of some logical processors.

    Args:
        allowed: numbers of the logical processors that the process may run on.
        root: folder that has ``proc`` and ``sys``.
    """
    cores: dict[tuple[str, str], int] = {}
    for cpu in sorted(allowed):
        cores.setdefault(_core_of(cpu, root), cpu)
    fast, node_of = _performance(set(cores.values()), root), _nodes_by_cpu(root)
    nodes = Counter(map(node_of, sorted(fast)))
    (node, most), *_ = nodes.most_common(1)
    slow = {*cores.values()} - fast
    there = sum(node_of(cpu) == node for cpu in slow)
    in_front = max(fast) < min(slow, default=max(fast) + 1) or bool(_capacities(fast, root))
    return Cores(len(cores), len(fast), most, len(nodes), cpu_quota(root), there, in_front)


def allowed_cpus() -> set[int]:
    """Numbers of the logical processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Processors' worth of time that the process's groups may take together, by the tightest limit of those that it is
    in and of those around them; None if nothing limits it."""
    quotas = [quota for folder, kind in _group_folders(root) if (quota := _quota_of(folder, kind)) is not None]
    return min(quotas, default=None)


def _core_of(cpu: int, root: Path) -> tuple[str, str]:
    topology = root / _CPUS / f"cpu{cpu}" / "topology"
    package, core = (_text(topology / name) for name in ("physical_package_id", "core_id"))
    return ("", str(cpu)) if package is None or core is None else (package, core)


def _performance(cpus: set[int], root: Path) -> set[int]:
    """Those that are no efficiency cores; all, if the system tells no difference or allows no others."""
    slow = {cpu for kind in _SLOW for cpu in _listed(_text(root / kind))} if _text(root / _FAST) else set()
    capacities = _capacities(cpus, root)
    most = max(capacities.values(), default=0)
    slow |= {cpu for cpu, capacity in capacities.items() if capacity < _PERFORMANCE * most}
    return cpus - slow or cpus


def _capacities(cpus: set[int], root: Path) -> dict[int, int]:
    """Those that are known."""
    listed = {cpu: _number(root / _CPUS / f"cpu{cpu}" / "cpu_capacity") for cpu in cpus}
    return {cpu: capacity for cpu, capacity in listed.items() if capacity is not None}


def _nodes_by_cpu(root: Path) -> Callable[[int], str]:
    known = {
        cpu: folder.name
        for folder in sorted((root / _NODES).glob("node[0-9]*"))
        for cpu in _listed(_text(folder / "cpulist"))
    }
    return lambda cpu: known.get(cpu, "")


def _group_folders(root: Path) -> Iterator[tuple[Path, str]]:
    """Folders of the groups that the process is in, and of those around them as far as they are visible."""
    for line in (_text(root / _GROUPS) or "").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers and _QUOTA not in controllers.split(","):
            continue
        kind = "cgroup" if controllers else _UNIFIED
        for mounted, inside in _mounts(kind, root):
            # Within a container the path may be the host's, of which the mount shows a part.
            relative = path.removeprefix(inside) if inside != "/" and _is_within(path, inside) else path
            folder = mounted / relative.strip("/")
            while True:
                # A folder may be another user's, or its name none that this system takes.
                if os.path.isdir(folder):
                    yield folder, kind
                if folder == mounted or mounted not in folder.parents:
                    break
                folder = folder.parent


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _mounts(kind: str, root: Path) -> list[tuple[Path, str]]:
    """Where a hierarchy with the controller is mounted, and which part of it."""
    mounts = []
    for line in (_text(root / _MOUNTS) or "").splitlines():
        before, dash, after = line.partition(" - ")
        fields, described = before.split(), after.split()
        if not dash or len(fields) < 5 or not described or described[0] != kind:
            continue
        if kind == _UNIFIED or _QUOTA in described[-1].split(","):
            mounts.append((root / fields[4].lstrip("/"), fields[3]))
    return mounts or [(root / mount, "/") for mount in _USUAL_MOUNTS[kind]]


def _quota_of(folder: Path, kind: str) -> float | None:
    """The limit that one group sets."""
    if kind == _UNIFIED:
        words = (_text(folder / "cpu.max") or "").split()
    else:
        words = [_text(folder / name) or "" for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")]
    try:
        quota, period = map(int, words)
    except ValueError:
        # "max", or no file.
        return None
    return quota / period if quota > 0 and period > 0 else None


def _listed(text: str | None) -> set[int]:
    """The numbers of a list such as ``0-3,8``."""
    numbers = set[int]()
    for part in (text or "").split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            numbers.update(range(int(first), int(last or first) + 1))
    return numbers


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text is not None and text.isdecimal() else None


def _text(path: Path) -> str | None:
    """A file's content without white space around it; None if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
