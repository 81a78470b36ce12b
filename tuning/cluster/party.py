"""Which machines take part in a compilation: those of one kind, as the times of others say nothing about it.

And the pool that measures on them.
"""

from __future__ import annotations

import logging
import platform
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sartor.codegen.ir.target import Target
from sartor.errors import DeviceError, UsageError
from sartor.tuning.cluster.farm import Farm
from sartor.tuning.cluster.link import DaskLink, Link, Scheduler
from sartor.tuning.cluster.machine import Machine, code_version, compiler_version
from sartor.tuning.cluster.remote_pool import RemotePool
from sartor.tuning.records.hardware import host
from sartor.tuning.workers.sharing import Turns

_LOG = logging.getLogger(__name__)
_FIND_SECONDS = 30.0
_POLL_SECONDS = 0.5
# Operating systems' names of instruction sets for which LLVM uses another name.
_ISAS = {"amd64": "x86_64", "arm64": "aarch64"}


@dataclass(frozen=True)
class Party:
    """The machines that take part in a compilation.

    Attributes:
        target: what they compile and measure.
        example: a machine of the kind.
    """

    target: Target
    example: Machine

    @property
    def hardware(self) -> str:
        """The key under which measurements are stored."""
        return self.example.measured_as(self.target.device)

    def measures(self, machine: Machine) -> bool:
        """Whether a machine measures: it is of the kind, and of this version."""
        return machine.kind == self.example.kind and machine.code == self.example.code

    def compiles(self, machine: Machine) -> bool:
        """Whether a machine compiles: with this compiler, and if the code is for the CPU that compiles it, the kind."""
        is_alike = machine.kind == self.example.kind or not self.target.is_this_cpu
        return machine.code == self.example.code and machine.compiler == compiler_version() and is_alike


def find_party(machines: Iterable[Machine], target: Target, wanted: str | None) -> Party:
    """The machines to measure on, of the only kind that there is, or of the one that is ``wanted``.

    Args:
        machines: that are connected.
        target: of the compilation.
        wanted: the beginning of a kind's digits, or a part of its description; None if there is only one.

    Raises:
        DeviceError: if no machine suits.
        UsageError: if several kinds do, or the target must be named.
    """
    usable = _usable(machines, target)
    kinds = {machine.kind: machine for machine in usable}
    fitting = {kind: machine for kind, machine in kinds.items() if wanted is None or _fits(machine, wanted)}
    listed = "; ".join(sorted(kind.kind_text for kind in kinds.values()))
    if not fitting:
        raise DeviceError(f"no worker's machine is of the kind '{wanted}' that --tune-for names; there are {listed}")
    if len(fitting) > 1:
        raise UsageError(
            "workers of several kinds of machines are connected, and times of one say nothing about another; name one "
            f"by --tune-for: {listed}"
        )
    (example,) = fitting.values()
    if target.is_this_cpu and example.hardware.key != host().key:
        raise UsageError(
            f"code for 'host' is for this machine, and the workers' is another ({example.kind_text}); name its level "
            "by --cpu, such as x86-64-v3 or aarch64:cortex-a76 ('sartor doctor' there says it)"
        )
    return Party(target, example)


def _usable(machines: Iterable[Machine], target: Target) -> list[Machine]:
    """Machines of this version that have the device.

    Raises:
        DeviceError: if there is none.
    """
    code, listed = code_version(), list(machines)
    same = [machine for machine in listed if machine.code == code]
    for other in {machine.name: machine for machine in listed if machine.code != code}.values():
        _LOG.warning("the worker on %s is left out: it runs %s, and this is %s", other.name, other.code, code)
    isa = target.isa or _isa(platform.machine())
    usable = [machine for machine in same if machine.runs(target.device, isa)]
    if not usable:
        there = "; ".join(sorted({machine.kind_text for machine in same})) or "none of this version"
        raise DeviceError(
            f"no worker runs code for {target}; start one there by 'sartor worker'; the connected ones are: {there}"
        )
    return usable


def _fits(machine: Machine, wanted: str) -> bool:
    return machine.kind.startswith(wanted) or wanted.lower() in f"{machine.name} {machine.kind_text}".lower()


def _isa(machine: str) -> str:
    return _ISAS.get(machine.lower(), machine.lower())


@dataclass(frozen=True)
class Cluster:
    """Machines that a compilation measures on.

    Attributes:
        party: which ones.
        link: the way to them.
    """

    party: Party
    link: Link

    @property
    def threads(self) -> int:
        """CPU threads that suit the machines."""
        return self.party.example.threads

    @property
    def hardware(self) -> str:
        """The key under which what they measure is stored."""
        return self.party.hardware


@contextmanager
def find_cluster(scheduler: Scheduler, target: Target, wanted: str | None) -> Iterator[Cluster]:
    """The machines of a scheduler that a target can be measured on; see ``find_party``.

    Raises:
        DeviceError: if there is no scheduler, or no worker whose machine runs the target.
        UsageError: as ``find_party``.
    """
    link = DaskLink(scheduler)
    try:
        yield Cluster(_party(link, scheduler, target, wanted), link)
    finally:
        link.close()


def _party(link: Link, scheduler: Scheduler, target: Target, wanted: str | None) -> Party:
    """Wait a while for a worker: scheduler and workers are often started in one go."""
    end, is_said = time.monotonic() + _FIND_SECONDS, False
    while True:
        machines = link.machines()
        if machines:
            return find_party(machines.values(), target, wanted)
        lacking = "there is no Dask scheduler" if machines is None else "no worker is connected to the scheduler"
        if time.monotonic() >= end:
            raise DeviceError(
                f"{lacking} at {scheduler}; start one by 'dask scheduler', and workers by 'sartor worker'"
            )
        if not is_said:
            _LOG.warning("%s at %s; waiting up to %.0f s", lacking, scheduler, _FIND_SECONDS)
            is_said = True
        time.sleep(_POLL_SECONDS)


@contextmanager
def remote_pool(
    cluster: Cluster, count: int, folder: Path, turns: Turns | None, *, compiled_there: Collection[str]
) -> Iterator[RemotePool]:
    """A pool that measures on the machines of a cluster; leaving the context ends its processes here.

    Args:
        cluster: where to measure.
        count: number of processes here.
        folder: for temporary files.
        turns: taken with other compilations here.
        compiled_there: as for ``RemotePool``.
    """
    party = cluster.party
    farm = Farm(cluster.link, party.measures, party.compiles)
    _LOG.info("measuring on %s", party.example.kind_text)
    try:
        with RemotePool(count, folder, turns, farm, compiled_there) as pool:
            yield pool
    finally:
        farm.close()
