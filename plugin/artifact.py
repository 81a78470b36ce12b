"""Results of a compilation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sartor.codegen.ir.sizes.calls import SizedCall
from sartor.codegen.ir.variants.candidates import Rejection
from sartor.runtime.manifest import Manifest
from sartor.tuning.errors.error_measures import RELATIVE, ErrorMeasure
from sartor.tuning.records.plan import Plan
from sartor.tuning.records.plan_set import PlanSet, ShapedPlan
from sartor.tuning.selection.problem.limits import Amounts, Quantity


@dataclass(frozen=True)
class ParetoPoint:
    """A plan on a Pareto front.

    Attributes:
        plan: the plan.
        needed: predicted amount of each quantity: seconds, bytes, sum of squared errors.
        error: of the outputs by the user's measure, simulated; None if no layer may be narrower than the model.
    """

    plan: Plan
    needed: Amounts
    error: float | None = None


@dataclass(frozen=True)
class ParetoFront:
    """The Pareto front of two quantities: plans between the best for one and the best for the other.

    Attributes:
        first: the quantity that the points are sorted by, the least first.
        second: the quantity that is traded for it.
        points: none is better than another in one of the two and no worse in the other.
        complete: whether there are no other points.
    """

    first: Quantity
    second: Quantity
    points: tuple[ParetoPoint, ...]
    complete: bool


@dataclass(frozen=True)
class Artifact:
    """A finished module.

    Attributes:
        path: the .vmfb.
        plan: the plan from which it was built, with measured times if it was tuned in this run.
        error: of the outputs against the reference; None if it was not run.
        size: bytes of the .vmfb.
        weights: the .irpa beside it, if the weights are not inside.
        pareto: the front, if one was asked for.
        measure: of the error.
        allowed: the largest error with which it counts as right; None if it was not run.
        layers: what comparing its layers one by one says; empty if rounding neither amplifies nor hides errors.
        samples: number of samples on which the error was measured.
        unchecked: outputs that are constant or arbitrary on these samples, so their error means nothing.
        others: how many processors other programs took while something was measured, if that left too few; else 0.
        reference: who computed what the outputs were compared with, as messages say it; empty if nothing ran.
        unvouched: why nobody but the rewritten model vouches for them, one sentence each.
        rejections: why routines do not support layers, by task.
        successor: the plan for later inferences, if ``plan`` is for the first one only.
        successor_error: of its outputs.
        successor_layers: as ``layers``.
        added_bytes: of the weights that only the successor reads.
        sizes: of a file for any size the ranges, and where they are from, one line each.
        calls: for which sizes its plan was selected; times are the means of these calls'.
    """

    path: Path
    plan: Plan
    error: float | None
    size: int
    weights: Path | None = None
    pareto: ParetoFront | None = None
    measure: ErrorMeasure = RELATIVE
    allowed: float | None = None
    layers: str = ""
    samples: int = 1
    unchecked: tuple[str, ...] = ()
    others: float = 0.0
    reference: str = ""
    unvouched: tuple[str, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    successor: Plan | None = None
    successor_error: float | None = None
    successor_layers: str = ""
    added_bytes: int = 0
    sizes: tuple[str, ...] = ()
    calls: tuple[SizedCall, ...] = ()

    @property
    def named_error(self) -> str:
        """What the error is, as tables name it: "relative error to ONNX Runtime"."""
        return f"{self.measure} error{f' to {self.reference}' if self.reference else ''}"


@dataclass(frozen=True)
class SeveralArtifact:
    """A finished file with several plans.

    Attributes:
        path: the .vmfb.
        size: its bytes.
        weight_bytes: bytes of its weights, of which equal ones are counted once for a device.
        manifest: what it says of itself.
        plans: as tuned, with measured times, in the order of the manifest's alternatives.
        errors: of the outputs of each plan against the reference; None if it was not run.
        shapes: that each plan was made for, as the user gave them.
        rejections: of each plan, why routines do not support layers, by task.
        layers: of each plan, what comparing its layers says; empty if they were not to be compared.
        weights: the .irpa beside it, if the weights are not inside.
        sizes: of a file for any size the ranges, and where they are from, one line each.
    """

    path: Path
    size: int
    weight_bytes: int
    manifest: Manifest
    plans: tuple[Plan, ...]
    errors: tuple[float | None, ...]
    shapes: tuple[Mapping[str, tuple[int, ...]], ...]
    rejections: tuple[tuple[Rejection, ...], ...]
    layers: tuple[str, ...]
    weights: Path | None = None
    sizes: tuple[str, ...] = ()

    @property
    def plan_set(self) -> PlanSet:
        """The plans with their shapes."""
        pairs = zip(self.shapes, self.plans, strict=True)
        return PlanSet(tuple(ShapedPlan(dict(shapes), plan) for shapes, plan in pairs))
