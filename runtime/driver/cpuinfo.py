"""What Linux says of this machine's processors: the one reader of ``/proc/cpuinfo``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

Processor = Mapping[str, str]
"""The fields of a logical processor by their names."""

_CPUINFO = Path("/proc/cpuinfo")
# Of x86, Arm and RISC-V.
_FEATURES = ("flags", "Features", "isa")


def processors() -> list[Processor]:
    """The logical processors of this machine; none if the system does not tell."""
    try:
        return parsed(_CPUINFO.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return []


def parsed(text: str) -> list[Processor]:
    """The logical processors that a text in the format of ``/proc/cpuinfo`` describes."""
    return [_fields(block) for block in text.split("\n\n") if block.strip()]


def features_of(processor: Processor) -> frozenset[str]:
    """The instruction set extensions of a processor, by Linux's names."""
    return frozenset(word for name in _FEATURES for word in processor.get(name, "").split())


def features() -> frozenset[str]:
    """The instruction set extensions of the first processor of this machine that tells them."""
    return next(filter(None, map(features_of, processors())), frozenset())


def _fields(block: str) -> Processor:
    pairs = (line.partition(":") for line in block.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}
