"""Worker side: what the first execution of a variant takes, and later ones beside it.

Code that was loaded just now lies in memory and not in the processor's caches, its pages are in no translation
buffer, and what the variant works with is allocated for the first time. Reading weights is another cost, counted by
their bytes: they are as they are when later executions are timed. What the first call of any program takes longer is
paid once by a network, not by each layer; the probe tells it, and it does not count.
"""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sartor.codegen.ir.variants.routine import Variant
from sartor.runtime.driver.device import open_device
from sartor.runtime.driver.native_device import NativeDevice
from sartor.runtime.driver.program import Program
from sartor.runtime.module import open_module
from sartor.tuning.measuring.benchmark_case import PROBE, BenchmarkCase
from sartor.tuning.measuring.case_data import CaseData
from sartor.tuning.measuring.runs.variant_runner import VariantRunner

_ROUNDS = 5
_LATER = 3
# More than the last-level caches of the processors that networks are compiled on, or of the part that a core uses.
_CACHES_BYTES = 48 << 20


@dataclass(frozen=True)
class Executions:
    """Seconds of executions of a variant, each of ``first`` of code that was loaded anew.

    Attributes:
        first: of the first execution.
        later: the shortest of some executions after it, and what the first call of the probe took longer.
    """

    first: tuple[float, ...]
    later: tuple[float, ...]


def first_executions(
    case: BenchmarkCase, modules: Mapping[str, Path], probe: Path, device: str, threads: int
) -> dict[str, Executions]:
    """Execute variants that are known to be right, each several times of code loaded anew, in a random order.

    Args:
        case: what was compiled.
        modules: descriptor to the file that runs the variant.
        probe: the compiled ``PROBE``.
        device: name, as ``open_device`` takes it.
        threads: of a CPU.

    Raises:
        DeviceError: if the device fails.
    """
    opened, data, order = open_device(device, threads), CaseData(case), random.Random(0)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in modules}
    calling = _Calls(probe, opened)
    for _ in range(_ROUNDS):
        begun = calling.excess()
        for name in order.sample(sorted(modules), len(modules)):
            variant = next(candidate for candidate in case.variants if candidate.descriptor == name)
            first, later = calling.executed(case, variant, modules[name], data)
            times[name].append((first, later + begun))
    return {
        name: Executions(tuple(first for first, _ in pairs), tuple(later for _, later in pairs))
        for name, pairs in times.items()
    }


class _Calls:
    """Calls freshly loaded programs on a device whose own code has just run."""

    def __init__(self, probe: Path, device: NativeDevice) -> None:
        self._probe, self._device, self._data = probe, device, CaseData(PROBE)
        self._known = VariantRunner(PROBE, PROBE.variants[0], self._loaded(probe), device, self._data)
        self._known.run()

    def excess(self) -> float:
        """Seconds that the first call of the probe takes longer than a later one."""
        first, later = self.executed(PROBE, PROBE.variants[0], self._probe, self._data)
        return max(first - later, 0.0)

    def executed(self, case: BenchmarkCase, variant: Variant, module: Path, data: CaseData) -> tuple[float, float]:
        """Seconds of the first call of a variant, and of the shortest later one."""
        program = self._loaded(module)
        _empty_caches()
        # Arguments are made behind that, as in a network other layers have written what a layer reads.
        runner = VariantRunner(case, variant, program, self._device, data)
        self._known.run()
        taken = [_seconds(runner) for _ in range(1 + _LATER)]
        return taken[0], min(taken[1:])

    def _loaded(self, module: Path) -> Program:
        return Program(open_module(module).native, module.name, self._device, {})


def _seconds(runner: VariantRunner) -> float:
    begin = time.perf_counter()
    runner.run()
    return time.perf_counter() - begin


@functools.cache
def _other_memory() -> np.ndarray:
    return np.zeros(_CACHES_BYTES, np.uint8)


def _empty_caches() -> None:
    """Fill the processor's caches with something else."""
    _other_memory().fill(1)
