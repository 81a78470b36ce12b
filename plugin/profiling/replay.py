"""Replays a plan without measuring: the same model and plan give the same recipe."""

from __future__ import annotations

from pathlib import Path

from sartor.costing.candidates import find_candidates
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.value_ranges import quantised_by
from sartor.planning.recipe import Recipe
from sartor.planning.recorded_recipe import recipe_of_plan
from sartor.policies import PlanPolicy
from sartor.tuning.records.plan import Plan


def replay(
    plan: Plan, imported: ImportedModel, policy: PlanPolicy, dump: Path | None = None
) -> tuple[ImportedModel, Recipe]:
    """The model with the ranges that a plan records, and the recipe that it records; ``dump`` as ``find_candidates``.

    Raises:
        UsageError: if the plan was made for another model, target or version.
    """
    imported = quantised_by(plan.ranges, imported)
    candidates = find_candidates(imported, policy, dump)
    return imported, recipe_of_plan(plan, imported, candidates.variants, policy.target)
