"""The properties of the machine on which the speed of compiled code depends."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sartor.runtime.driver.cpuinfo import Processor, features_of, processors

BEFORE_GPU = " + "
"""Stands in a key between the processor and each GPU."""

# Linux versions differ in flags for mitigations and power management. Only flags that affect the generated code are
# in the key, so that a kernel update does not invalidate all measurements.
_ISA_FEATURE = re.compile(
    r"(sse|ssse|avx|amx|fma|f16c|bmi|abm$|popcnt|gfni|vaes|movdir"  # x86
    r"|asimd|neon|vfp|half|fphp|sve|sme(\d|_|$)|i8mm|bf16|rv\d)"  # Arm, RISC-V
)
_IDENTITY = ("model name", "cpu family", "model", "stepping", "cache size")
_ARM_IDENTITY = ("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Hardware:
    """The properties of a machine that identify it in measurements.

    Attributes:
        architecture: as the operating system names it, ``x86_64`` or ``aarch64``.
        models: the distinct processor models, sorted; several if cores differ.
        features: instruction set extensions, sorted.
        cores: number of logical processors.
    """

    architecture: str
    models: tuple[str, ...]
    features: tuple[str, ...]
    cores: int

    @property
    def description(self) -> str:
        """One line for messages."""
        return f"{' + '.join(self.models)}, {self.architecture}, {self.cores} cores"

    @property
    def key(self) -> str:
        """The description and a hash of all attributes: equal for equal machines, and readable in the database."""
        identity = "\n".join((self.architecture, *self.models, *self.features, str(self.cores)))
        return f"{self.description} [{hashlib.sha256(identity.encode()).hexdigest()[:12]}]"


@cache
def host() -> Hardware:
    """This machine, by what Linux says of its processors, or by the platform module if it says nothing."""
    return hardware_of(processors(), platform.machine(), os.cpu_count() or 1)


def last_level_cache(caches: Path = _CACHES) -> int:
    """Bytes of the largest cache of the first processor; 0 if the system does not tell."""
    sizes = []
    for path in caches.glob("index*/size"):
        size = re.fullmatch(r"(\d+)([KMG]?)", path.read_text(encoding="ascii").strip())
        if size:
            sizes.append(int(size[1]) * _UNITS.get(size[2], 1))
    return max(sizes, default=0)


def with_gpus(key: str, gpus: Iterable[str]) -> str:
    """The key of a machine's processor with the names of GPUs that are measured on it."""
    return BEFORE_GPU.join((key, *gpus))


def processor_of(key: str) -> str:
    """The key of the processor in one that may name GPUs."""
    return key.partition(BEFORE_GPU)[0]


def hardware_of(cpus: Sequence[Processor], architecture: str, cores: int) -> Hardware:
    """The machine of some logical processors of x86, Arm or RISC-V."""
    models = {model for fields in cpus if (model := _model(fields))}
    features = {word for fields in cpus for word in features_of(fields) if _ISA_FEATURE.match(word)}
    fallback = platform.processor() or "unknown processor"
    return Hardware(architecture, tuple(sorted(models)) or (fallback,), tuple(sorted(features)), cores)


def _model(fields: Processor) -> str:
    if "CPU part" in fields:
        return "Arm " + "/".join(fields.get(name, "?") for name in _ARM_IDENTITY)
    name, *details = (fields.get(name, "") for name in _IDENTITY)
    known = "/".join(detail for detail in details if detail)
    return f"{name or 'processor'} ({known})" if known else name or fields.get("uarch", "")
