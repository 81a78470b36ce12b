"""Run one variant of open sizes with those of several calls, whose mean time counts."""

from __future__ import annotations

from sartor.codegen.ir.variants.routine import Variant
from sartor.runtime.driver.iree_runtime import NativeDevice, Program
from sartor.runtime.driver.signature import Array
from sartor.tuning.measuring.benchmark_case import BenchmarkCase
from sartor.tuning.measuring.case_data import CaseData
from sartor.tuning.measuring.runs.variant_runner import TimedRunner, VariantRunner


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
        shares = [call.of.share for call in case.calls]
        self._timed = [(share, runner) for share, runner in zip(shares, self._runners, strict=True) if share]
        self.packed_bytes = self._runners[0].packed_bytes
        self.error = 0.0

    @property
    def least_seconds(self) -> float:
        """What calls take at least in the mean."""
        return sum(share * each.least_seconds for share, each in self._timed)

    def timed(self, overhead: float) -> float:
        """Seconds of a call in the mean, without ``overhead``, the cost of a run."""
        return sum(share * each.timed(overhead) for share, each in self._timed)

    def warm_up(self) -> None:
        """Call it several times untimed, so that its memory is allocated."""
        for each in self._runners:
            each.warm_up()

    def outputs(self) -> list[Array]:
        """Run it once with each call's sizes; returns results in ONNX layout, those of the largest sizes first.

        Raises:
            DeviceError: if the variant does not run.
        """
        return [result for each in self._runners for result in each.outputs()]


def runner_of(
    case: BenchmarkCase, variant: Variant, program: Program, device: NativeDevice, data: CaseData
) -> TimedRunner:
    """What runs a variant: with the sizes of the case's calls, if it has any."""
    return (SizedRunner if case.calls else VariantRunner)(case, variant, program, device, data)
