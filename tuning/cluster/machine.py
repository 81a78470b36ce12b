"""What a worker says about its machine, and the kinds of machines that follow."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from sartor.codegen.source_digest import source_digest
from sartor.devices import CPU, GPU_KINDS, is_cpu
from sartor.runtime.driver.device import list_devices, physical_cores
from sartor.tuning.records.hardware import Hardware, host, with_gpus

REPORT = "sartor"
"""Under this name a worker's report is part of what Dask's scheduler knows of it."""

MEASURE = "MEASURE"
COMPILE = "COMPILE"
"""Dask resources of a worker: one measurement at a time, and as many compilations as it has processors for."""

_BOOT = Path("/proc/sys/kernel/random/boot_id")
# What is pickled and run on both ends; modules with these must be the same there.
_SHARED = (
    "sartor.tuning.cluster.service",
    "sartor.tuning.measuring.away",
    "sartor.tuning.networks.profile_job",
    "sartor.tuning.networks.sample_runs",
)


@dataclass(frozen=True)
class Machine:
    """A worker and the machine that it measures on.

    Attributes:
        worker: identity of the worker, another one after each start.
        name: of the machine, for people.
        host: identity of the machine, the same for all workers on it, in containers too.
        hardware: the processor.
        gpus: devices other than the CPU, with the drivers' names of them: ``vulkan:llvmpipe (LLVM 15.0.6)``.
        threads: CPU threads that measurements use by default, one per physical core.
        code: of which version the worker is; others cannot work together.
        compilers: number of compilations at a time; 0 without the compiler.
        compiler: its version; empty without it.
    """

    worker: str
    name: str
    host: str
    hardware: Hardware
    gpus: tuple[str, ...]
    threads: int
    code: str
    compilers: int = 0
    compiler: str = ""

    @property
    def kind(self) -> str:
        """Eight digits that are the same for machines of one kind, and differ for any others."""
        identity = "\n".join((self.hardware.key, str(self.threads), *self.gpus))
        return hashlib.sha256(identity.encode()).hexdigest()[:8]

    @property
    def kind_text(self) -> str:
        """The kind in one line, for people."""
        devices = ", ".join((CPU, *self.gpus))
        return f"{self.kind}: {self.hardware.description}, {self.threads} threads, {devices}"

    @property
    def resources(self) -> dict[str, float]:
        """Dask resources that name the kind: device, processor and threads, and what the worker does."""
        names = [f"KIND {self.kind}", f"ISA {self.hardware.architecture}", f"THREADS {self.threads}"]
        names += [f"CPU {model}" for model in self.hardware.models] + ["DEVICE cpu"]
        names += [f"DEVICE {gpu}" for gpu in self.gpus]
        compilers = {COMPILE: float(self.compilers)} if self.compilers else {}
        return {MEASURE: 1.0, **dict.fromkeys(names, 1.0), **compilers}

    def measured_as(self, device: str) -> str:
        """The key of the hardware under which measurements on a device are stored.

        For a CPU it is that of the machine's own measurements. Two machines with one CPU may have unlike GPUs, so these
        are part of it.
        """
        gpus = [gpu for gpu in self.gpus if gpu.partition(":")[0] == device]
        return with_gpus(self.hardware.key, gpus)

    def runs(self, device: str, isa: str) -> bool:
        """Whether it has a device, and if that is the CPU, the instruction set ``isa``."""
        if not is_cpu(device):
            return any(gpu.partition(":")[0] == device for gpu in self.gpus)
        return self.hardware.architecture == isa

    def to_json(self) -> str:
        """Text for ``of_json``."""
        return json.dumps(asdict(self))

    @staticmethod
    def of_json(text: str) -> Machine:
        """The machine that a worker reports.

        Raises:
            ValueError: if the text is something else.
        """
        try:
            fields: Mapping[str, Any] = json.loads(text)
            lists = {name: tuple(fields["hardware"][name]) for name in ("models", "features")}
            hardware = Hardware(**{**fields["hardware"], **lists})
            return Machine(**{**fields, "hardware": hardware, "gpus": tuple(fields["gpus"])})
        except (KeyError, TypeError) as error:
            raise ValueError(f"a worker's report cannot be read: {error}") from None


def this_machine(compilers: int | None = None) -> Machine:
    """This machine, as a worker on it reports it.

    Args:
        compilers: number of compilations at a time; None for one per physical core, if the compiler is installed.
    """
    compiler = compiler_version()
    most = physical_cores() if compiler else 0
    count = most if compilers is None else min(compilers, most)
    return Machine(
        worker=uuid.uuid4().hex,
        name=platform.node() or "unknown",
        host=_host(),
        hardware=host(),
        gpus=tuple(
            f"{device.spec.partition(':')[0]}:{device.name}" for device in list_devices() if _is_gpu(device.spec)
        ),
        threads=physical_cores(),
        code=code_version(),
        compilers=count,
        compiler=compiler if count else "",
    )


@functools.cache
def code_version() -> str:
    """Versions of the package, the protocol of its jobs, and the runtime, which both ends must share."""
    runtime = metadata.version("iree-base-runtime")
    return f"sartor {metadata.version('sartor')} {source_digest(*_SHARED)}, iree-runtime {runtime}"


def compiler_version() -> str:
    """The version of IREE's compiler; empty if it is not installed."""
    try:
        return metadata.version("iree-base-compiler")
    except metadata.PackageNotFoundError:
        return ""


def _is_gpu(spec: str) -> bool:
    return spec.partition(":")[0] in GPU_KINDS


def _host() -> str:
    """What containers on one machine have in common; names of machines need not differ."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return f"{platform.node()} {os.getuid()}"
