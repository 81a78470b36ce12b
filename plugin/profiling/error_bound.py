"""The bound on the outputs' error in one compilation.

Stored runs contain their error and no judgement: each compilation judges them by its own bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from onnx import ModelProto

from sartor.config import Precision
from sartor.errors import CompileError
from sartor.frontend.imported_model import ImportedModel
from sartor.reference.tolerance import tolerance
from sartor.samples.sample_sets import SampleSet
from sartor.tuning.errors.error_budget import MOST_ROUNDED, ErrorBudget
from sartor.tuning.errors.error_measures import ErrorMeasure, MeasureKind
from sartor.tuning.networks.profile_job import NetRun
from sartor.tuning.records.measurement import Measurement, Status
from sartor.tuning.selection.problem.limits import Quantity
from sartor.tuning.selection.programming.infeasible import LimitError, unmet

THAT_RAN = " that was run"
"""The plans for which the nearest limit is known, in messages."""

_ALLOW_MORE = "--max-error allows more, if that is acceptable"

_Run = TypeVar("_Run", Measurement, NetRun)


@dataclass(frozen=True)
class ErrorBound:
    """The largest error of the outputs against ONNX Runtime.

    Attributes:
        measure: of the error.
        allowed: the user's bound, or the usual bound of the model and its precision.
        explicable: rounding in a right module explains errors up to this; a larger error is a defect.
    """

    measure: ErrorMeasure
    allowed: float
    explicable: float

    @classmethod
    def of(cls, imported: ImportedModel, samples: SampleSet, budget: ErrorBudget, precision: Precision) -> ErrorBound:
        """The bound of a compilation. The user's bound, if there is one, also holds for quantised and f16 models."""
        usual = budget.usual
        # The error by rounding in the model's own types is known as a relative error only.
        if budget.measure.kind is MeasureKind.RELATIVE:
            skeleton = ModelProto.FromString(imported.skeleton)
            usual = tolerance(skeleton, usual, samples.tie_spread)
        most = usual if precision is Precision.F32 else MOST_ROUNDED
        return cls(budget.measure, replace(budget, usual=usual).allowed, most)

    def stored(self, run: Measurement) -> Measurement | None:
        """A stored run with its status by this bound; None if it must be run again.

        A run whose error exceeded all earlier bounds was not timed.
        """
        is_wrong = run.status is Status.WRONG_RESULT and run.error is not None
        return None if is_wrong and (run.error or 0.0) <= self.allowed else self.judged(run)

    def judged(self, run: _Run) -> _Run:
        """A run with its status by this bound."""
        if run.error is None or run.status is not Status.OK or run.error <= self.allowed:
            return run
        message = f"{self.measure} error {run.error:.2g} against ONNX Runtime, allowed is {self.allowed:.2g}"
        return replace(run, status=Status.WRONG_RESULT, message=message)

    def refusal(self, runs: Sequence[Measurement | NetRun]) -> CompileError | LimitError:
        """The exception for the case that none of some judged runs is right.

        If rounding explains the least error, the user's bound is too small, and the message names the nearest bound.
        """
        errors = [run.error for run in runs if run.status is Status.WRONG_RESULT and run.error is not None]
        if errors and self.allowed < min(errors) <= self.explicable:
            least = min(errors)
            return LimitError(unmet(Quantity.ERROR, self.allowed, least, THAT_RAN), {Quantity.ERROR: least})
        said = runs[0].message if runs else "none ran"
        return CompileError(f"no plan is right: {said}; {_ALLOW_MORE}")
