"""Worker side: find the variants of a case whose results are right.

They are compared with candidate 0. If it does not compile or run, or if variants of the same precision differ from it,
it counts no more than they do: the layer's own ONNX nodes decide, or the majority of variants if the nodes cannot run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

import numpy as np

from sartor.codegen.ir.block_packing import FOUR_BITS
from sartor.codegen.ir.variants.descriptor import algorithm_of
from sartor.codegen.ir.variants.routine import Variant
from sartor.errors import DeviceError
from sartor.runtime.driver.native_device import NativeDevice
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import Array
from sartor.runtime.output_error import LAYER, largest_error, output_scale, relative_error
from sartor.tuning.errors.near_ties import without_near_ties
from sartor.tuning.measuring.benchmark_case import BenchmarkCase
from sartor.tuning.measuring.case_data import CaseData
from sartor.tuning.measuring.runs.sized_runner import runner_of
from sartor.tuning.measuring.runs.variant_runner import TimedRunner
from sartor.tuning.records.measurement import Status
from sartor.tuning.workers.protocol import OUT_OF_MEMORY_SIGN

ROUNDING = {"tf32": 5e-3, "f16": 5e-3, "bf16": 3e-2, "i8": 1e-1, **dict.fromkeys(FOUR_BITS.values(), 1e-1)}
"""Allowed error of a layer by element type, relative to its largest result; networks have bounds of their own."""

_ON_A_GRID = "i8"
# Share of 8-bit results that may be one step off ONNX Runtime's: it sums in another order, and rounds other ties.
_TIES = 0.01


class Arbiter(Protocol):
    """Computes the reference results of a layer without IREE; it is pickled to workers."""

    @property
    def layer(self) -> str:
        """Name of a layer of the case's task."""

    def weights(self) -> list[Array]:
        """The layer's own weights, in ONNX layout."""

    def results(self, inputs: Sequence[Array]) -> list[Array] | None:
        """Reference results for these activations and the layer's weights; None if they cannot be computed."""


@dataclass(frozen=True)
class Failure:
    """The status and message of a variant that is not timed."""

    status: Status
    message: str
    error: float | None = None


@dataclass(frozen=True)
class Checked:
    """Runners of right variants, with their errors, and failures of the others; both by descriptor."""

    runners: Mapping[str, TimedRunner]
    failures: Mapping[str, Failure]


@dataclass(frozen=True)
class _Ran:
    runner: TimedRunner
    outputs: list[Array]


@dataclass
class _Agreeing:
    """Variants with the same results."""

    outputs: list[Array]
    names: list[str] = field(default_factory=list)

    @property
    def routines(self) -> set[str]:
        return {algorithm_of(name) for name in self.names}


@dataclass(frozen=True)
class Checker:
    """Runs the variants of one case and checks their results.

    Attributes:
        case: what was compiled.
        programs: what runs each variant, by descriptor; candidate 0 may be missing.
        device: what they run on.
        max_error: largest relative error, for variants that do not round to a narrower type.
    """

    case: BenchmarkCase
    programs: Mapping[str, Program]
    device: NativeDevice
    max_error: float

    def check(self, arbiter: Arbiter | None) -> Checked:
        """Run and check all variants; returns runners of the right ones, ready to be timed."""
        comparison = self._against_first()
        if comparison is None or self._is_disputed(comparison):
            is_disputed = comparison is not None
            # Its device memory must be freed before the variants are set up again.
            comparison = None
            comparison = self._arbitrated(arbiter, is_disputed) or self._by_majority()
        for runner in comparison.runners.values():
            runner.warm_up()
        return comparison

    @property
    def _first(self) -> Variant:
        return self.case.variants[0]

    @property
    def _variants(self) -> list[Variant]:
        return [variant for variant in self.case.variants if variant.descriptor in self.programs]

    def _against_first(self) -> Checked | None:
        """Compare all variants with candidate 0; None if it has no results."""
        if self._first.descriptor not in self.programs:
            return None
        data = CaseData(self.case)
        try:
            first = self._run(self._first, data)
        except DeviceError:
            return None
        return self._compared(data, first.outputs, self._first.descriptor, ran={self._first.descriptor: first})

    def _is_disputed(self, checked: Checked) -> bool:
        """Whether a variant of candidate 0's precision differs from it, or all other variants do."""
        differing = [variant for variant in self._variants if _is_wrong(checked.failures.get(variant.descriptor))]
        others = set(checked.runners) - {self._first.descriptor}
        most = self._allowed(self._first)
        return any(self._allowed(variant_of_all) <= most for variant_of_all in differing) or (
            bool(differing) and not others
        )

    def _arbitrated(self, arbiter: Arbiter | None, is_disputed: bool) -> Checked | None:
        """Compare all variants with the arbiter's results; None if it has none, or finds none wrong in a dispute.

        Variants may differ on random weights and agree on those of the layer.
        """
        if arbiter is None:
            return None
        data = CaseData(self.case, arbiter.weights())
        expected = arbiter.results(data.inputs)
        if expected is None:
            return None
        comparison = self._compared(data, expected, f"ONNX Runtime on the nodes of layer '{arbiter.layer}'", ties=_TIES)
        is_settled = any(_is_wrong(failure) for failure in comparison.failures.values())
        return comparison if is_settled or not is_disputed else None

    def _by_majority(self) -> Checked:
        """Compare all variants with candidate 0, unless no other routine agrees with it and two others agree.

        Variants of one routine are no independent witnesses: they share its mistakes.
        """
        data = CaseData(self.case)
        parties = self._parties(data)
        if not parties:
            return self._compared(data, [], "nothing, as no variant runs")
        own = next((party for party in parties if self._first.descriptor in party.names), None)
        strongest = max(parties, key=lambda party: len(party.routines))
        if own is not None and (len(own.routines) > 1 or len(strongest.routines) < 2):
            strongest = own
        name = self._first.descriptor if strongest is own else " and ".join(sorted(strongest.routines))
        return self._compared(data, strongest.outputs, name)

    def _parties(self, data: CaseData) -> list[_Agreeing]:
        """Groups of variants that agree, the most precise first; others join the first group within their bound."""
        parties: list[_Agreeing] = []
        for variant in sorted(self._variants, key=self._allowed):
            if parties:
                data.results = max(parties, key=lambda party: len(party.routines)).outputs
            try:
                outputs = self._run(variant, data).outputs
            except DeviceError:
                continue
            near = (
                party for party in parties if self._error(variant, outputs, party.outputs) <= self._allowed(variant)
            )
            party = next(near, None)
            if party is None:
                parties.append(party := _Agreeing(outputs))
            party.names.append(variant.descriptor)
        return parties

    def _compared(
        self,
        data: CaseData,
        reference: list[Array],
        name: str,
        *,
        ties: float = 0.0,
        ran: Mapping[str, _Ran] = MappingProxyType({}),
    ) -> Checked:
        """Compare every variant with a reference, called ``name`` in messages; variants in ``ran`` do not run again."""
        data.results = reference
        scales = layer_scales(reference)
        runners: dict[str, TimedRunner] = {}
        failures: dict[str, Failure] = {}
        for variant in self._variants:
            try:
                tried = ran.get(variant.descriptor) or self._run(variant, data)
            except DeviceError as error:
                is_memory = OUT_OF_MEMORY_SIGN.search(str(error)) is not None
                failures[variant.descriptor] = Failure(
                    Status.OUT_OF_MEMORY if is_memory else Status.CRASHED, str(error)
                )
                continue
            # An arbiter knows the results for the largest sizes alone, which come first.
            outputs = tried.outputs[: len(reference)]
            error_value = self._error(variant, _without_ties(outputs, reference, ties), reference, scales)
            if error_value <= self._allowed(variant):
                tried.runner.error = error_value
                runners[variant.descriptor] = tried.runner
            else:
                blamed = "candidate 0 is wrong: " if variant is self._first else ""
                message = f"{blamed}relative error {error_value:.2g} against {name}"
                failures[variant.descriptor] = Failure(Status.WRONG_RESULT, message, error_value)
        return Checked(runners, failures)

    def _run(self, variant: Variant, data: CaseData) -> _Ran:
        runner = runner_of(self.case, variant, self.programs[variant.descriptor], self.device, data)
        return _Ran(runner, runner.outputs())

    def _error(
        self, variant: Variant, outputs: Sequence[Array], reference: Sequence[Array], scales: Sequence[Array] = ()
    ) -> float:
        """Error of a variant's results against a reference, ignoring numbers next to rounding ties."""
        moved = without_near_ties(outputs, reference, self.case.step, is_narrow=variant.dtype in ROUNDING)
        return variant_error(moved, reference, variant.dtype, scales)

    def _allowed(self, variant: Variant) -> float:
        return allowed_error(variant, self.max_error)


def allowed_error(variant: Variant, max_error: float) -> float:
    """Largest allowed error of a variant; ``max_error`` is the bound of variants that do not round."""
    return max(max_error, ROUNDING.get(variant.dtype, 0.0))


def layer_scales(reference: Sequence[Array]) -> list[Array]:
    """Scales by which differences from a layer's reference results are divided, one array per result."""
    return [output_scale(array, lenience=LAYER) for array in reference]


def variant_error(
    outputs: Sequence[Array], reference: Sequence[Array], dtype: str, scales: Sequence[Array] = ()
) -> float:
    """Relative error of a variant's results against a reference.

    Args:
        outputs: results of the variant, in ONNX layout.
        reference: the right results.
        dtype: element type of the variant; 8-bit results have the same absolute precision in all slices.
        scales: of the reference, if they are known.
    """
    if dtype == _ON_A_GRID and len(outputs) == len(reference):
        return max((largest_error(*pair) for pair in zip(outputs, reference, strict=True)), default=0.0)
    return relative_error(outputs, reference, scales=scales or layer_scales(reference))


def _is_wrong(failure: Failure | None) -> bool:
    return failure is not None and failure.status is Status.WRONG_RESULT


def _without_ties(outputs: list[Array], reference: Sequence[Array], share: float) -> list[Array]:
    """Results with 8-bit numbers one step off replaced by the reference, if only a small share of them is off."""
    if not share:
        return outputs
    return [_tied(output, right, share) for output, right in zip(outputs, reference, strict=True)]


def _tied(output: Array, right: Array, share: float) -> Array:
    if right.dtype.itemsize > 1 or right.dtype.kind not in "iu" or output.shape != right.shape:
        return output
    steps = output.view(np.uint8) - right.view(np.uint8)
    near = np.isin(steps, (1, 255))
    return np.where(near, right, output) if np.count_nonzero(near) <= share * near.size else output
