"""Replays a plan without measuring: the same model and plan give the same recipe."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from sartor.codegen.ir.variants.candidates import Candidates
from sartor.costing.candidates import find_candidates
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.value_ranges import quantised_by
from sartor.planning.recipe import Recipe
from sartor.planning.recorded_recipe import blocks_of, recipe_of_plan
from sartor.policies import PlanPolicy
from sartor.tuning.records.plan import Plan


@dataclass(frozen=True)
class Replayed:
    """What a plan records.

    Attributes:
        imported: the model with the ranges that the plan records.
        recipe: of the plan.
        candidates: of all layers.
    """

    imported: ImportedModel
    recipe: Recipe
    candidates: Candidates


def replay(plan: Plan, imported: ImportedModel, policy: PlanPolicy, dump: Path | None = None) -> Replayed:
    """The recipe that a plan of this model records; ``dump`` as ``find_candidates``.

    Raises:
        UsageError: if the plan was made for another model, target or version.
    """
    imported = quantised_by(plan.ranges, imported)
    candidates = find_candidates(imported, replace(policy, blocks=blocks_of(plan)), dump)
    return Replayed(imported, recipe_of_plan(plan, imported, candidates.variants, policy.target), candidates)
