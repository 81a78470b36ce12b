"""Run one variant of open sizes with those of several calls, whose mean time counts."""

from __future__ import annotations

from statistics import median

from sartor.codegen.ir.variants.routine import Variant
from sartor.runtime.driver.native_device import NativeDevice
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import Array
from sartor.tuning.measuring.benchmark_case import BenchmarkCase
from sartor.tuning.measuring.case_data import CaseData
from sartor.tuning.measuring.runs.variant_runner import TimedRunner, VariantRunner

# Calls of more seconds vary by little, and take most of the time of measuring.
_LONG_SECONDS = 5e-3
_SURE = 3


class TimedCall:
    """Times calls with some sizes, long ones a few times only: then the median of their times stands for them."""

    def __init__(self, runner: TimedRunner) -> None:
        self._runner = runner
        self._taken: list[float] = []

    @property
    def least_seconds(self) -> float:
        """What a call takes at least."""
        return self._runner.least_seconds

    def timed(self, overhead: float) -> float:
        """Seconds of a call, without ``overhead``."""
        if len(self._taken) >= _SURE and min(self._taken) > _LONG_SECONDS:
            return median(self._taken)
        self._taken.append(self._runner.timed(overhead))
        return self._taken[-1]


class SizedRunner:
    """Runs one variant with the sizes of each call, on the same copies of its weights.

    Args:
        case: with calls, the largest sizes first.
        variant, program, device, data: as for ``VariantRunner``.

    Attributes:
        packed_bytes: size of its packed weights.
        error: of its results.
    """

    def __init__(
        self, case: BenchmarkCase, variant: Variant, program: Program, device: NativeDevice, data: CaseData
    ) -> None:
        copies = data.copies(variant.implementation.packings, device)
        self._runners = [
            VariantRunner(case.at(call), variant, program, device, data.at(call), copies) for call in case.calls
        ]
        pairs = zip(case.calls, self._runners, strict=True)
        self._timed = [(call.of.share, TimedCall(runner)) for call, runner in pairs if call.of.share]
        self._rounds: list[tuple[float, ...]] = []
        self.packed_bytes = self._runners[0].packed_bytes
        self.error = 0.0

    @property
    def least_seconds(self) -> float:
        """What calls take at least in the mean."""
        return sum(share * call.least_seconds for share, call in self._timed)

    def timed(self, overhead: float) -> float:
        """Seconds of a call in the mean, without ``overhead``, the cost of a run."""
        taken = tuple(call.timed(overhead) for _, call in self._timed)
        self._rounds.append(taken)
        return sum(share * seconds for (share, _), seconds in zip(self._timed, taken, strict=True))

    @property
    def by_call(self) -> tuple[tuple[float, ...], ...]:
        """Seconds of each call that counts, in the order of the case's; at least those, if nothing was timed, and none
        where that is not known."""
        if self._rounds:
            return tuple(zip(*self._rounds, strict=True))
        least = [call.least_seconds for _, call in self._timed]
        return tuple((seconds,) if seconds else () for seconds in least)

    def warm_up(self) -> None:
        """Call it several times untimed, so that its memory is allocated."""
        for runner in self._runners:
            runner.warm_up()

    def outputs(self) -> list[Array]:
        """Run it once with each call's sizes; returns results in ONNX layout, those of the largest sizes first.

        Raises:
            DeviceError: if the variant does not run.
        """
        return [result for runner in self._runners for result in runner.outputs()]


def runner_of(
    case: BenchmarkCase, variant: Variant, program: Program, device: NativeDevice, data: CaseData
) -> TimedRunner:
    """What runs a variant: with the sizes of the case's calls, if it has any."""
    return (SizedRunner if case.calls else VariantRunner)(case, variant, program, device, data)
