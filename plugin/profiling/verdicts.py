"""Judges runs of networks by a compilation's error budget.

Stored runs contain their error and no judgement: each compilation judges them by its own budget.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from onnx import ModelProto

from sartor.errors import CompileError, WrongOutputsError
from sartor.frontend.imported_model import ImportedModel
from sartor.planning.recipe import Recipe
from sartor.profiling.layerwise.verdict import LayerVerdict
from sartor.reference.tie_spread import rounds_values
from sartor.reference.tolerance import has_half_precision, tolerance, with_permitted
from sartor.samples.sample_sets import SampleSet
from sartor.tuning.errors.error_budget import ErrorBudget
from sartor.tuning.errors.error_measures import MeasureKind
from sartor.tuning.networks.profile_job import NetRun, told_output
from sartor.tuning.records.measurement import Measurement, Status
from sartor.tuning.selection.problem.limits import Quantity
from sartor.tuning.selection.programming.infeasible import LimitError, unmet

_ALLOW_MORE = "--max-error allows more, if that is acceptable"
_NO_NUMBER = "an output has another shape, other integers, truth values or texts, or infinities or NaN at other places"

_Run = TypeVar("_Run", Measurement, NetRun)


def budget_of_model(budget: ErrorBudget, imported: ImportedModel, samples: SampleSet) -> ErrorBudget:
    """The budget with the errors by rounding in the model's own types, and by what it permits to round, which are known
    as relative errors only."""
    if budget.measure.kind is not MeasureKind.RELATIVE:
        return budget
    skeleton = ModelProto.FromString(imported.skeleton)
    usual = with_permitted(budget.usual, samples.permitted_error)
    inherent = tolerance(skeleton, usual, samples.tie_spread)
    amplifies = imported.is_rounding or has_half_precision(skeleton)
    rounds = imported.is_rounding and rounds_values(skeleton)
    return replace(budget, usual=usual, inherent=inherent, amplifies=amplifies, rounds=rounds)


def judged(run: _Run, budget: ErrorBudget) -> _Run:
    """A run with its status by this budget, also if it was wrong by a wider bound, beyond which nothing is timed."""
    if run.error is None or run.error <= budget.accepted or run.status not in (Status.OK, Status.WRONG_RESULT):
        return run
    error = f"{budget.measure} error {run.error:.2g}{told_output(run.message)}"
    message = f"{error} against the reference, allowed is {budget.accepted:.2g}"
    return replace(run, status=Status.WRONG_RESULT, message=message)


def is_open(run: Measurement | NetRun, budget: ErrorBudget, recipe: Recipe) -> bool:
    """Whether only the layers can tell if a run is right; those of a model that IREE compiles whole cannot."""
    is_beyond = run.error is not None and run.error > budget.accepted
    return budget.asks_layers and not recipe.plan.unsplit and is_beyond


def compares_layers(run: Measurement | NetRun, budget: ErrorBudget, recipe: Recipe) -> bool:
    """Whether layers judge a run: where only they can tell, and where rounding to integers hides what layers do wrong.

    Of a model that IREE compiles whole, those of the rewritten model.
    """
    is_within = run.error is not None and run.error <= budget.accepted
    return is_open(run, budget, recipe) or (budget.asks_layers and budget.rounds and is_within)


def judged_by_layers(run: NetRun, verdict: LayerVerdict, budget: ErrorBudget) -> NetRun:
    """A run with the status by its layers; by its error if these were not compared, and nothing else is suspect."""
    if verdict.reason and verdict.suspect is None:
        run = judged(run, budget)
        if run.status is Status.OK:
            return replace(run, layers=verdict.sentence)
        return replace(run, message=f"{run.message}; {verdict.sentence}")
    if verdict.is_right:
        return replace(run, layers=verdict.sentence)
    # Without an error, by which it would be judged again.
    message = f"{verdict.sentence}; {verdict.advice}"
    return replace(run, status=Status.WRONG_RESULT, error=None, message=message, layers=verdict.sentence)


def provisional(run: _Run, budget: ErrorBudget, recipe: Recipe) -> _Run:
    """A run judged as far as its error tells: right if its layers decide, which is asked before it is published."""
    return run if is_open(run, budget, recipe) and run.status is Status.OK else judged(run, budget)


def is_rounded(run: Measurement | NetRun, budget: ErrorBudget) -> bool:
    """Whether a run was judged wrong by the user's bound alone: without one its error would be accepted."""
    usual = replace(budget, given=None).accepted
    return run.status is Status.WRONG_RESULT and run.error is not None and run.error <= usual


def judged_again(run: Measurement, budget: ErrorBudget, recipe: Recipe) -> Measurement | None:
    """A stored run with its status by this budget, as of ``provisional``; None if it must be run again.

    A run whose error exceeded all earlier bounds was not timed.
    """
    is_wrong = run.status is Status.WRONG_RESULT and run.error is not None
    is_right = (run.error or 0.0) <= budget.accepted or is_open(run, budget, recipe)
    return None if is_wrong and is_right else provisional(run, budget, recipe)


def unmet_by_runs(quantity: Quantity, bound: float, least: float) -> LimitError:
    """The error that no network which was run meets a limit; what was not run might come nearer than ``least``."""
    sentence = unmet(quantity, bound, least, " that was run")
    return LimitError(f"{sentence}, which is the best found so far", {quantity: least})


def refusal(runs: Sequence[Measurement | NetRun], budget: ErrorBudget) -> CompileError | LimitError:
    """The exception for the case that none of some judged runs is right.

    If rounding explains the least error, the user's bound is too small, and the message names the nearest bound.
    """
    errors = [run.error for run in runs if run.status is Status.WRONG_RESULT and run.error is not None]
    if errors and budget.accepted < min(errors) <= budget.explicable:
        least = min(errors)
        return unmet_by_runs(Quantity.ERROR, budget.accepted, least)
    said = runs[0].message if runs else "none ran"
    if runs and all(run.status is Status.COMPILE_FAILED for run in runs):
        return CompileError(said)
    message = f"no plan is right: {said}"
    if runs and runs[0].status is Status.WRONG_RESULT and runs[0].error is None:
        # It was judged by something else than its error, whose message has an advice of its own.
        return WrongOutputsError(message)
    if errors and math.isinf(min(errors)) and budget.measure.kind is MeasureKind.RELATIVE:
        return WrongOutputsError(f"{message}; {_NO_NUMBER}")
    return WrongOutputsError(f"{message}; {_ALLOW_MORE}") if errors else CompileError(message)
