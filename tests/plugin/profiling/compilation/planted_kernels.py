"""Kernels with faults that only a run, or the compiler, sees."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from sartor.codegen.ir.variants.routine import KernelSource, Variant


@dataclass(frozen=True)
class PlantedKernel:
    """A kernel in whose code all matches of a pattern are replaced."""

    kernel: KernelSource
    pattern: str
    new: str

    @property
    def identity(self) -> str:
        return f"{self.kernel.identity} {self.new}"

    def executables(self) -> tuple[str, ...]:
        return tuple(re.sub(self.pattern, self.new, executable) for executable in self.kernel.executables())


def with_fault(variant: Variant, pattern: str, new: str) -> Variant:
    """A variant with the fault; the same if it is no kernel, or its code does not match."""
    kernel = variant.implementation.kernel
    if kernel is None or not any(re.search(pattern, executable) for executable in kernel.executables()):
        return variant
    planted = PlantedKernel(kernel, pattern, new)
    return replace(variant, implementation=replace(variant.implementation, kernel=planted, overwriting=None))
