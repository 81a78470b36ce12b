"""What counts as right in one compilation.

Stored runs hold their error and no verdict on it: each compilation judges them by its own bound.
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
"""What a nearest limit is known of."""

_ALLOW_MORE = "--max-error allows more, if that is acceptable"

_Run = TypeVar("_Run", Measurement, NetRun)


@dataclass(frozen=True)
class ErrorBound:
    """How far outputs may be from ONNX Runtime's.

    Attributes:
        measure: of the error.
        allowed: the user's bound, or ``usual`` of the model and its precision.
        explicable: an error up to this is what rounding makes of a right module, a larger one is a defect.
    """

    measure: ErrorMeasure
    allowed: float
    explicable: float

    @classmethod
    def of(cls, imported: ImportedModel, samples: SampleSet, budget: ErrorBudget, precision: Precision) -> ErrorBound:
        """The bound of a compilation: the user's own if there is one, for quantised and f16 models, too."""
        usual = budget.usual
        # What the model's own types round off is known as a relative error only.
        if budget.measure.kind is MeasureKind.RELATIVE:
            skeleton = ModelProto.FromString(imported.skeleton)
            usual = tolerance(skeleton, usual, samples.tie_spread)
        most = usual if precision is Precision.F32 else MOST_ROUNDED
        return cls(budget.measure, replace(budget, usual=usual).allowed, most)

    def stored(self, run: Measurement) -> Measurement | None:
        """A stored run with its status by this bound; None if it has to run again.

        What was too far off for every compilation up to then was not timed.
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
        """The error that says that none of some judged runs is right.

        A network as exact as its types let it be is no defect: the user wants more than that, and is told what is
        nearest.
        """
        errors = [run.error for run in runs if run.status is Status.WRONG_RESULT and run.error is not None]
        if errors and self.allowed < min(errors) <= self.explicable:
            least = min(errors)
            return LimitError(unmet(Quantity.ERROR, self.allowed, least, THAT_RAN), {Quantity.ERROR: least})
        said = runs[0].message if runs else "none ran"
        return CompileError(f"no plan is right: {said}; {_ALLOW_MORE}")
