"""The levels of x86-64, which kernels and their speed depend on."""

from __future__ import annotations

from collections.abc import Iterable

from sartor.tuning.records.hardware import Hardware

# System V ABI, AMD64 supplement, section 3.1.1, by Linux's names of what each adds.
_LEVELS = {
    "x86-64-v2": {"cx16", "popcnt", "sse4_1", "sse4_2", "ssse3"},
    "x86-64-v3": {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"},
    "x86-64-v4": {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"},
}


def level_of(features: Iterable[str]) -> str:
    """The highest level of x86-64 whose extensions are all there; Linux calls ``bmi1`` and ``movbe`` so too."""
    present, level = set(features), "x86-64"
    for name, added in _LEVELS.items():
        # What every machine of a level has is not in the key of measurements, so it may be absent here.
        if not {feature for feature in added if feature not in {"cx16", "movbe"}} <= present:
            break
        level = name
    return level


def isa_class(hardware: Hardware) -> str:
    """The level of an x86-64 processor, or the architecture of another: kernels of equal classes behave alike."""
    return level_of(hardware.features) if hardware.architecture == "x86_64" else hardware.architecture
